/**
 * A command in a sandbox, from its start to its end. What it writes is read as fast as the reader asks for more: one who
 * stops reading stops the process by its full pipe, through the windows of both HTTP/2 hops.
 *
 *   start ─► frames: stdout, stderr … exit      the reader leaves, or `kill` ─► its process group is killed
 *      └──► input: stdin, end, signals
 */
import http2, { type ClientHttp2Stream } from 'node:http2';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { AppError, type ExecRequest } from '@coppice/contract';
import { z } from 'zod';
import { encodeFrame, FRAME, FrameDecoder, MAX_FRAME_BYTES } from '../../lib/frames.ts';
import type { RunnerClient } from '../placement/runner-client.ts';

/** The agent kills at the timeout; this much later the host no longer believes that it will. */
const AGENT_GRACE_MS = 10_000;
/** After the exit frame the agent ends the stream itself: a reset would kill what the command left running. */
const STREAM_END_MS = 10_000;
const TIMED_OUT_EXIT_CODE = 124;

const Exit = z.object({ exit_code: z.int().min(0).max(255), timed_out: z.boolean() });
export type Exit = z.infer<typeof Exit>;

export type CommandOutput = { type: 'stdout' | 'stderr'; data: Buffer } | ({ type: 'exit' } & Exit);

export interface StartCommand {
  runner: RunnerClient;
  /** The sandbox's. */
  id: string;
  request: ExecRequest;
  /** Standard input stays open for {@link RunningCommand.writeStdin}, behind what the request gives. */
  isInteractive: boolean;
}

export class RunningCommand implements AsyncIterable<CommandOutput> {
  readonly #stream: ClientHttp2Stream;
  readonly #input: PassThrough;
  readonly #endsAtMs: number;
  readonly #decoder = new FrameDecoder();

  private constructor(stream: ClientHttp2Stream, input: PassThrough, timeoutMs: number) {
    this.#stream = stream;
    this.#input = input;
    this.#endsAtMs = performance.now() + timeoutMs;
    input.on('error', () => undefined);
    stream.once('close', () => input.destroy());
  }

  /** Resolves when the process has started; rejects with the agent's refusal. */
  static async start({ runner, id, request, isInteractive }: StartCommand): Promise<RunningCommand> {
    const input = new PassThrough();
    for (const frame of buildFirstFrames(request, isInteractive)) input.write(frame);
    if (!isInteractive) input.end();
    try {
      const { stream } = await runner.exec(id, input);
      return new RunningCommand(stream, input, request.timeout * 1000);
    } catch (error) {
      input.destroy();
      throw error;
    }
  }

  /** Ends with the exit; throws `guest_unreachable` when there is none. To be read once. Leaving it kills the command. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CommandOutput> {
    const chunks = this.#stream.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
    let hasExited = false;
    try {
      for (;;) {
        const chunk = await this.#next(chunks);
        if (chunk === 'overdue') {
          yield { type: 'exit', exit_code: TIMED_OUT_EXIT_CODE, timed_out: true };
          return;
        }
        for (const { type, payload } of this.#decoder.push(chunk)) {
          if (type === FRAME.stdout) yield { type: 'stdout', data: payload };
          else if (type === FRAME.stderr) yield { type: 'stderr', data: payload };
          else if (type === FRAME.exit) {
            const exit = Exit.parse(JSON.parse(payload.toString('utf8')));
            hasExited = true;
            yield { type: 'exit', ...exit };
            return;
          }
        }
      }
    } catch (cause) {
      throw new AppError('guest_unreachable', 'the sandbox was lost while the command ran', { cause });
    } finally {
      if (hasExited) this.#endQuietly();
      else this.kill();
    }
  }

  /** Resolves when there is room for more. What comes after the end is thrown away. */
  async writeStdin(data: Buffer): Promise<void> {
    for (let start = 0; start < data.length; start += MAX_FRAME_BYTES) {
      await this.#send(encodeFrame(FRAME.stdin, data.subarray(start, start + MAX_FRAME_BYTES)));
    }
  }

  async endStdin(): Promise<void> {
    await this.#send(encodeFrame(FRAME.stdinEnd));
  }

  /** A name without SIG, to the command's process group. It waits behind input that the process does not read. */
  async signal(name: string): Promise<void> {
    await this.#send(encodeFrame(FRAME.signal, Buffer.from(JSON.stringify({ signal: name }))));
  }

  /**
   * Idempotent; nothing happens to a command that has ended. Input that is still open is broken off, not closed:
   * `close(code)` would end it first, and a program could take what it has for all.
   */
  kill(): void {
    if (this.#input.writableEnded) this.#stream.close(http2.constants.NGHTTP2_CANCEL);
    else this.#input.destroy();
  }

  /** Only silence counts: output that a slow reader has yet to fetch may come long after the timeout. */
  async #next(chunks: AsyncIterator<Buffer>): Promise<Buffer | 'overdue'> {
    const overdue = Promise.withResolvers<'overdue'>();
    const remainingMs = Math.max(0, this.#endsAtMs - performance.now()) + AGENT_GRACE_MS;
    const timer = setTimeout(() => overdue.resolve('overdue'), remainingMs);
    try {
      const next = await Promise.race([chunks.next(), overdue.promise]);
      if (next === 'overdue') return next;
      if (next.done === true) throw new Error('the stream ended before the exit frame');
      return next.value;
    } finally {
      clearTimeout(timer);
    }
  }

  async #send(frame: Buffer): Promise<void> {
    if (!this.#input.writable || this.#input.write(frame)) return;
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

  #endQuietly(): void {
    this.#input.end();
    this.#stream.resume();
    if (this.#stream.closed) return;
    const timer = setTimeout(() => this.kill(), STREAM_END_MS);
    this.#stream.once('close', () => clearTimeout(timer));
  }
}

/** Head and the standard input that the request has. */
function buildFirstFrames(request: ExecRequest, isInteractive: boolean): Buffer[] {
  const { command, cwd, env, user, timeout, stdin } = request;
  const hasInput = isInteractive || stdin !== undefined;
  const head = { command, cwd, env, user, timeout_ms: timeout * 1000, stdin: hasInput };
  const frames = [encodeFrame(FRAME.head, Buffer.from(JSON.stringify(head)))];
  const input = Buffer.from(stdin ?? '');
  for (let start = 0; start < input.length; start += MAX_FRAME_BYTES) {
    frames.push(encodeFrame(FRAME.stdin, input.subarray(start, start + MAX_FRAME_BYTES)));
  }
  if (stdin !== undefined && !isInteractive) frames.push(encodeFrame(FRAME.stdinEnd));
  return frames;
}
