/** Writes a stream to a file that the reader chooses, piece by piece: it may be larger than the memory. */

/** The part of the File System Access API that is used here; only some browsers have it. */
interface SaveWindow {
  showSaveFilePicker?: (options: { suggestedName: string }) => Promise<{
    createWritable: () => Promise<WritableStream<Uint8Array<ArrayBuffer>>>;
  }>;
}

/** Whether the browser can write a stream to a file. */
export function canSaveStreams(): boolean {
  return typeof (globalThis as SaveWindow).showSaveFilePicker === 'function';
}

/**
 * Asks for a file, then opens the stream and writes it there. Call it in the handler of a click: browsers ask only then.
 * Rejects with an `AbortError` if the reader chooses no file. A failed transfer leaves the file as it was.
 */
export async function saveStream(
  suggestedName: string,
  open: () => Promise<ReadableStream<Uint8Array<ArrayBuffer>>>,
  onBytes: (count: number) => void,
): Promise<void> {
  const { showSaveFilePicker } = globalThis as SaveWindow;
  if (showSaveFilePicker === undefined) throw new Error('This browser cannot write large files.');
  const file = await showSaveFilePicker({ suggestedName });
  const source = await open();
  const target = await file.createWritable();
  let count = 0;
  const meter = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
    transform(chunk, controller) {
      count += chunk.byteLength;
      onBytes(count);
      controller.enqueue(chunk);
    },
  });
  await source.pipeThrough(meter).pipeTo(target);
}
