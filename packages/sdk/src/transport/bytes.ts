import type { Deadline } from './deadline.ts';
import { CoppiceError } from './errors.ts';

/** Answers held in memory at once; a larger file has to be read as a stream. */
export const MAX_BUFFERED_BYTES = 256 * 2 ** 20;

/**
 * Reads a body whole. Throws `response_too_large` past `limitBytes`, and gives up the rest of the body. A body that
 * breaks off rejects with what `explainBreak` makes of the break and of the bytes that came before it.
 */
export async function collectBytes(
  body: ReadableStream<Uint8Array> | null,
  limitBytes: number,
  explainBreak: (error: unknown, begun: Uint8Array) => unknown = (error) => error,
): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  const isWhole = await readUpTo(body, limitBytes, chunks).catch((error: unknown) => {
    throw explainBreak(error, joinChunks(chunks));
  });
  if (isWhole) return joinChunks(chunks);
  throw new CoppiceError(`the answer is over ${limitBytes} bytes; read it as a stream`, {
    status: 0,
    code: 'response_too_large',
  });
}

/** Reads at most `limitBytes` of a body and gives up the rest, or what came before it broke off. */
export async function collectPrefix(
  body: ReadableStream<Uint8Array> | null,
  limitBytes: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  // The status of an error is worth more than the break: a service that refuses an upload may close at once.
  await readUpTo(body, limitBytes, chunks).catch(() => false);
  return joinChunks(chunks).subarray(0, limitBytes);
}

/** Puts the body into `chunks`; false if it is longer than the limit. */
async function readUpTo(
  body: ReadableStream<Uint8Array> | null,
  limitBytes: number,
  chunks: Uint8Array[],
): Promise<boolean> {
  if (body === null) return true;
  const reader = body.getReader();
  let sizeBytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    chunks.push(value);
    sizeBytes += value.length;
    if (sizeBytes <= limitBytes) continue;
    await reader.cancel();
    return false;
  }
}

function joinChunks(chunks: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(chunks.reduce((total, chunk) => total + chunk.length, 0));
  let offset = 0;
  for (const chunk of chunks) {
    joined.set(chunk, offset);
    offset += chunk.length;
  }
  return joined;
}

/**
 * A download as the caller reads it. The deadline runs only while a chunk is awaited from the network, so a slow
 * reader is no fault; it ends with the stream. `mapError` turns a broken connection into the client's own error.
 */
export function watchDownload(
  body: ReadableStream<Uint8Array> | null,
  deadline: Deadline,
  options: { stallMs: number; mapError: (error: unknown) => unknown },
): ReadableStream<Uint8Array<ArrayBuffer>> {
  deadline.hold();
  const reader = body?.getReader();
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        deadline.restart(options.stallMs);
        try {
          const next = await reader?.read();
          deadline.hold();
          if (next !== undefined && !next.done)
            return controller.enqueue(next.value as Uint8Array<ArrayBuffer>);
          deadline.end();
          controller.close();
        } catch (error) {
          deadline.end();
          controller.error(options.mapError(error));
        }
      },
      async cancel(reason) {
        deadline.end();
        await reader?.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}

/** An upload stream in the hands of fetch. */
export interface WatchedUpload {
  body: ReadableStream<Uint8Array>;
  /** What the caller's stream failed with, because fetch reports only that it failed. */
  failure: () => { error: unknown } | undefined;
  /** To be called when the call is over: ends the caller's stream if it was not read to its end. */
  abandon: (reason: unknown) => void;
}

/**
 * An upload as fetch reads it. The deadline runs while the network takes a chunk and is held while the caller's
 * stream is awaited. Node's fetch does not cancel a stream that it is reading, hence `abandon`; what it then still
 * reads must be an error, as an end would make a cut file look whole.
 */
export function watchUpload(
  source: ReadableStream<Uint8Array>,
  deadline: Deadline,
  stallMs: number,
): WatchedUpload {
  const reader = source.getReader();
  let failed: { error: unknown } | undefined;
  let abandoned: { reason: unknown } | undefined;
  const abandon = (reason: unknown): void => {
    if (abandoned !== undefined) return;
    abandoned = { reason };
    reader.cancel(reason).catch((error: unknown) => {
      failed ??= { error };
    });
  };
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        deadline.hold();
        try {
          const { done, value } = await reader.read();
          if (abandoned !== undefined) controller.error(abandoned.reason);
          else if (done) controller.close();
          else controller.enqueue(value);
        } catch (error) {
          failed = { error };
          controller.error(error);
        }
        deadline.restart(stallMs);
      },
      cancel: abandon,
    },
    { highWaterMark: 0 },
  );
  return { body, failure: () => failed, abandon };
}
