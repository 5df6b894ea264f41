import type { Readable } from 'node:stream';
import { withDeadline } from '../../waiting/deadline.ts';

/** The connection broke or stalled while a body was read. */
export class BodyError extends Error {
  constructor(cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.name = 'BodyError';
  }
}

export interface BodyLimits {
  lengthBytes: number;
  /** Longest time without a byte, while the reader waits for one. */
  idleMs: number;
}

/** Reads a body of known length, and ends the connection if the reader leaves early. Throws {@link BodyError}. */
export async function* readBody(
  body: Readable,
  { lengthBytes, idleMs }: BodyLimits,
): AsyncGenerator<Uint8Array> {
  const pieces = body[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  let received = 0;
  try {
    for (;;) {
      const { value, done } = await next(pieces, idleMs);
      if (done === true) break;
      received += value.length;
      yield value;
    }
    if (received !== lengthBytes) throw new BodyError(`the server sent ${received} of ${lengthBytes} bytes`);
  } finally {
    // A late error of a body that no one reads must not end the process.
    body.on('error', () => undefined).destroy();
  }
}

async function next(pieces: AsyncIterator<Buffer>, idleMs: number): Promise<IteratorResult<Buffer>> {
  try {
    return await withDeadline('the next bytes of the body', idleMs, pieces.next());
  } catch (error) {
    throw new BodyError(error);
  }
}
