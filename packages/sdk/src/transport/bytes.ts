import type { Deadline } from './deadline.ts';
import { CoppiceError } from './errors.ts';

/** Largest answer that is held in memory. A larger file must be read as a stream. */
export const MAX_BUFFERED_BYTES = 256 * 2 ** 20;

/**
 * Reads a whole body. Throws {@link CoppiceError} with code `response_too_large` and cancels the body if it exceeds
 * `limitBytes`. If the body breaks off, throws the result of `explainBreak`, which gets the error and the bytes read so
 * far.
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

/** Reads at most `limitBytes` of a body and cancels the rest. Returns the bytes read so far if the body breaks off. */
export async function collectPrefix(
  body: ReadableStream<Uint8Array> | null,
  limitBytes: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  // The caller reports the status of the error, not the break: a service that refuses an upload may close at once.
  await readUpTo(body, limitBytes, chunks).catch(() => false);
  return joinChunks(chunks).subarray(0, limitBytes);
}

/** Appends the body to `chunks`. Returns false if it is longer than the limit. */
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
 * Wraps a download for the caller. The deadline runs only while a chunk is awaited from the network, so a slow reader
 * never exceeds it. The deadline ends with the stream. `mapError` converts a broken connection to the client's error.
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

/** An upload stream that fetch reads. */
export interface WatchedUpload {
  /** The stream to pass to fetch. */
  body: ReadableStream<Uint8Array>;
  /** Returns the error of the caller's stream, because fetch reports only that the stream failed. */
  failure: () => { error: unknown } | undefined;
  /** Cancels the caller's stream if it was not read to its end. Call it when the request is over. */
  abandon: (reason: unknown) => void;
}

/**
 * Wraps an upload for fetch. The deadline runs while the network takes a chunk and is held while the caller's stream is
 * awaited. Node's fetch does not cancel a stream that it reads, hence `abandon`. After that, fetch must read an error:
 * an end of stream would make a truncated file look complete.
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
