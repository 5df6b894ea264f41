/**
 * Frames to and from a process in a sandbox. What it writes is read as fast as the reader asks for more: one who stops
 * reading stops the process by its full pipe, through the windows of both HTTP/2 hops; what is sent waits the same way.
 *
 *   open ─► frames …, the last one told by the reader ─► finish     the reader leaves, or `kill` ─► the process is killed
 *      └──► send …, end
 */
import http2, { type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { encodeFrame, FrameDecoder, MAX_FRAME_BYTES, type Frame } from '../../lib/protocol/frames.ts';
import type { RunnerAnswer } from '../placement/runner-connection.ts';

/** After its last frame the agent ends the stream itself: a reset would kill what the process left running. */
const STREAM_END_MS = 10_000;

export interface OpenGuestStream {
  /** Sends the request, with what is written here as its body, and waits for the head of the answer. */
  request: (body: Readable) => Promise<RunnerAnswer>;
  /** Sent with the request. */
  first: readonly Buffer[];
  /** There is nothing to send after `first`. */
  isEnded?: boolean;
}

export class GuestStream {
  readonly #stream: ClientHttp2Stream;
  /** To the runner; a stream that is lost does not know it any more. */
  readonly #session: ClientHttp2Session | undefined;
  readonly #input: PassThrough;
  readonly #decoder = new FrameDecoder();

  private constructor(stream: ClientHttp2Stream, input: PassThrough) {
    this.#stream = stream;
    this.#session = stream.session as ClientHttp2Session | undefined;
    this.#input = input;
    input.on('error', () => undefined);
    stream.once('close', () => input.destroy());
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
   * Ends after the frame for which `isLast` holds; when there is none it throws `guest_unreachable`, or `unavailable`
   * if it was the runner that is gone, while the process goes on. To be read once.
   * Leaving it kills the process. `waitMs` says how long silence may last, for ever unless given; then it ends, too.
   */
  async *frames(isLast: (frame: Frame) => boolean, waitMs?: () => number): AsyncGenerator<Frame> {
    const chunks = this.#stream.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
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

  /** Resolves when there is room for more. What comes after the end is thrown away. */
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

  /** Any number of bytes, as frames of one type. */
  async sendBytes(type: number, data: Buffer): Promise<void> {
    for (const part of splitPayload(data)) await this.send(type, part);
  }

  /**
   * Idempotent; nothing happens to a process that has ended. Input that is still open is broken off, not closed:
   * `close(code)` would end it first, and a program could take what it has for all.
   */
  kill(): void {
    if (this.#input.writableEnded) this.#stream.close(http2.constants.NGHTTP2_CANCEL);
    else this.#input.destroy();
  }

  #explainLoss(cause: unknown): AppError {
    return this.#session?.destroyed === true
      ? new AppError('unavailable', 'the runner restarts; what ran goes on in the sandbox, unheard', {
          cause,
        })
      : new AppError('guest_unreachable', 'the sandbox was lost while the command ran', { cause });
  }

  #endQuietly(): void {
    this.#input.end();
    this.#stream.resume();
    if (this.#stream.closed) return;
    const timer = setTimeout(() => this.kill(), STREAM_END_MS);
    this.#stream.once('close', () => clearTimeout(timer));
  }
}

/** JSON that a guest wrote. */
export function parsePayload<T extends z.ZodType>(schema: T, payload: Buffer): z.infer<T> {
  try {
    return schema.parse(JSON.parse(payload.toString('utf8')));
  } catch (cause) {
    throw new AppError('guest_unreachable', 'the agent sent what its protocol does not allow', { cause });
  }
}

export function* splitPayload(data: Buffer): Generator<Buffer> {
  for (let start = 0; start < data.length; start += MAX_FRAME_BYTES)
    yield data.subarray(start, start + MAX_FRAME_BYTES);
}

/** Only silence counts: output that a slow reader has yet to fetch may come long after the time is up. */
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
