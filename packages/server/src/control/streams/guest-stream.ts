/**
 * Frames to and from a process in a sandbox. Output is read only as fast as the reader requests more. A reader that
 * stops reading stops the process by its full pipe, through the windows of both HTTP/2 hops. Input waits likewise.
 *
 *   open ─► frames …, up to the last one ─► finish     the reader leaves, or `kill` ─► the process is killed
 *      └──► send …, end
 */
import http2, { type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { encodeFrame, FrameDecoder, MAX_FRAME_BYTES, type Frame } from '../../lib/protocol/frames.ts';
import { isEnding } from '../../lib/streams/whole-stream.ts';
import type { RunnerAnswer } from '../placement/runner-connection.ts';

/** Time for the agent to end the stream after its last frame: a reset would kill what the process left running. */
const STREAM_END_MS = 10_000;

export interface OpenGuestStream {
  /** Sends the request with `body`, and waits for the head of the answer. */
  request: (body: Readable) => Promise<RunnerAnswer>;
  /** Frames that are sent with the request. */
  first: readonly Buffer[];
  /** True if nothing is sent after `first`. */
  isEnded?: boolean;
}

export class GuestStream {
  readonly #stream: ClientHttp2Stream;
  /** The session to the runner. A stream that is lost has no reference to it any more. */
  readonly #session: ClientHttp2Session | undefined;
  readonly #input: PassThrough;
  /** Filled from the start: when a connection closes, Node drops what of its streams has not been read. */
  readonly #output = new PassThrough();
  readonly #decoder = new FrameDecoder();

  private constructor(stream: ClientHttp2Stream, input: PassThrough) {
    this.#stream = stream;
    this.#session = stream.session as ClientHttp2Session | undefined;
    this.#input = input;
    input.on('error', () => undefined);
    stream.pipe(this.#output);
    stream.once('close', () => {
      this.#output.end();
      input.destroy();
    });
  }

  /** Resolves when the process has started; rejects with the agent's refusal. */
  static async open({ request, first, isEnded = false }: OpenGuestStream): Promise<GuestStream> {
    const input = new PassThrough();
    for (const frame of first) input.write(frame);
    if (isEnded) input.end();
    try {
      const { stream } = await request(input);
      return new GuestStream(stream, input);
    } catch (error) {
      input.destroy();
      throw error;
    }
  }

  /**
   * Yields frames up to the one for which `isLast` holds. Without such a frame it throws `guest_unreachable`, or
   * `unavailable` if the runner is gone while the process continues. Read it only once. Leaving the loop kills the
   * process. `waitMs` limits silence, which may last forever by default; after it the frames end, too.
   */
  async *frames(isLast: (frame: Frame) => boolean, waitMs?: () => number): AsyncGenerator<Frame> {
    const chunks = this.#output.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
    let isFinished = false;
    try {
      for (;;) {
        const chunk = await next(chunks, waitMs?.());
        if (chunk === 'overdue') return;
        for (const frame of this.#decoder.push(chunk)) {
          isFinished = isLast(frame);
          yield frame;
          if (isFinished) return;
        }
      }
    } catch (cause) {
      throw this.#explainLoss(cause);
    } finally {
      if (isFinished) this.#endQuietly();
      else this.kill();
    }
  }

  /** Sends a frame, and resolves when there is room for more. Frames after the end are discarded. */
  async send(type: number, payload?: Buffer): Promise<void> {
    if (!this.#input.writable || this.#input.write(encodeFrame(type, payload))) return;
    const closed = new AbortController();
    const stop = (): void => closed.abort();
    this.#input.once('close', stop);
    try {
      await once(this.#input, 'drain', { signal: closed.signal });
    } catch (error) {
      if (!closed.signal.aborted) throw error;
    } finally {
      this.#input.off('close', stop);
    }
  }

  /** Sends any number of bytes as frames of one type. */
  async sendBytes(type: number, data: Buffer): Promise<void> {
    for (const part of splitPayload(data)) await this.send(type, part);
  }

  /**
   * Kills the process. Idempotent; has no effect on a process that has ended. Input that is still open is cut off, not
   * closed: `close(code)` would end it first, and a program could take a part for the whole.
   */
  kill(): void {
    if (this.#input.writableEnded) this.#stream.close(http2.constants.NGHTTP2_CANCEL);
    else this.#input.destroy();
  }

  #explainLoss(cause: unknown): AppError {
    return isEnding(this.#session)
      ? new AppError('unavailable', 'the runner restarts; the process continues, but its output is lost', {
          cause,
        })
      : new AppError('guest_unreachable', 'the sandbox was lost while the command ran', { cause });
  }

  #endQuietly(): void {
    this.#input.end();
    this.#output.resume();
    if (this.#stream.closed) return;
    const timer = setTimeout(() => this.kill(), STREAM_END_MS);
    this.#stream.once('close', () => clearTimeout(timer));
  }
}

/** Parses JSON that a guest wrote. Throws `guest_unreachable` if it is invalid. */
export function parsePayload<T extends z.ZodType>(schema: T, payload: Buffer): z.infer<T> {
  try {
    return schema.parse(JSON.parse(payload.toString('utf8')));
  } catch (cause) {
    throw new AppError('guest_unreachable', 'the agent violated its protocol', { cause });
  }
}

export function* splitPayload(data: Buffer): Generator<Buffer> {
  for (let start = 0; start < data.length; start += MAX_FRAME_BYTES)
    yield data.subarray(start, start + MAX_FRAME_BYTES);
}

/**
 * Returns the next chunk, or `overdue` after `waitMs` of silence. A slow reader may fetch output long after a deadline.
 */
async function next(chunks: AsyncIterator<Buffer>, waitMs: number | undefined): Promise<Buffer | 'overdue'> {
  const overdue = Promise.withResolvers<'overdue'>();
  const timer = waitMs === undefined ? undefined : setTimeout(() => overdue.resolve('overdue'), waitMs);
  try {
    const step = await (waitMs === undefined
      ? chunks.next()
      : Promise.race([chunks.next(), overdue.promise]));
    if (step === 'overdue') return step;
    if (step.done === true) throw new Error('the stream ended before its last frame');
    return step.value;
  } finally {
    clearTimeout(timer);
  }
}
