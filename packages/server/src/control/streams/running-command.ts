/** A command in a sandbox, from its start to its end. */
import type { ExecRequest } from '@coppice/contract';
import { z } from 'zod';
import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { GuestStream, parsePayload, splitPayload } from './guest-stream.ts';

/** The agent kills the command at the timeout. If it has not done so after this time, the host does. */
const AGENT_GRACE_MS = 10_000;
const TIMED_OUT: Exit = { exit_code: 124, timed_out: true };

export const Exit = z.object({ exit_code: z.int().min(0).max(255), timed_out: z.boolean() });
export type Exit = z.infer<typeof Exit>;

export type CommandOutput = { type: 'stdout' | 'stderr'; data: Buffer } | ({ type: 'exit' } & Exit);

export interface StartCommand {
  runner: RunnerClient;
  /** Id of the sandbox. */
  id: string;
  request: ExecRequest;
  /** Keeps standard input open for {@link RunningCommand.writeStdin}, after the input of the request. */
  isInteractive: boolean;
  /** Whether a caller waits for the end of the command, and gets no part of its output before that. */
  isAwaited?: boolean;
}

export class RunningCommand implements AsyncIterable<CommandOutput> {
  readonly #stream: GuestStream;
  readonly #endsAtMs: number;

  private constructor(stream: GuestStream, timeoutMs: number) {
    this.#stream = stream;
    this.#endsAtMs = performance.now() + timeoutMs;
  }

  /** Resolves when the process has started; rejects with the agent's refusal. */
  static async start({
    runner,
    id,
    request,
    isInteractive,
    isAwaited = false,
  }: StartCommand): Promise<RunningCommand> {
    const stream = await GuestStream.open({
      request: (body) => runner.openProcess(id, 'exec', body, { isAwaited }),
      first: buildFirstFrames(request, isInteractive),
      isEnded: !isInteractive,
    });
    return new RunningCommand(stream, request.timeout * 1000);
  }

  /**
   * Ends with the exit. Throws `guest_unreachable` without one. Read it only once. Leaving the loop kills the command.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<CommandOutput> {
    const leftMs = (): number => Math.max(0, this.#endsAtMs - performance.now()) + AGENT_GRACE_MS;
    for await (const { type, payload } of this.#stream.frames(({ type: of }) => of === FRAME.exit, leftMs)) {
      if (type === FRAME.stdout) yield { type: 'stdout', data: payload };
      else if (type === FRAME.stderr) yield { type: 'stderr', data: payload };
      else if (type === FRAME.exit) {
        yield { type: 'exit', ...parsePayload(Exit, payload) };
        return;
      }
    }
    yield { type: 'exit', ...TIMED_OUT };
  }

  /** Writes input, and resolves when there is room for more. Input after the end is discarded. */
  async writeStdin(data: Buffer): Promise<void> {
    await this.#stream.sendBytes(FRAME.stdin, data);
  }

  async endStdin(): Promise<void> {
    await this.#stream.send(FRAME.stdinEnd);
  }

  /** Sends a signal, named without SIG, to the command's process group. It waits behind input that is not read yet. */
  async signal(name: string): Promise<void> {
    await this.#stream.send(FRAME.signal, Buffer.from(JSON.stringify({ signal: name })));
  }

  /** Kills the command. Idempotent; has no effect on a command that has ended. */
  kill(): void {
    this.#stream.kill();
  }
}

/** Builds the frames of the head and of the request's standard input. */
function buildFirstFrames(request: ExecRequest, isInteractive: boolean): Buffer[] {
  const { command, cwd, env, user, timeout, stdin } = request;
  const hasInput = isInteractive || stdin !== undefined;
  const head = { command, cwd, env, user, timeout_ms: timeout * 1000, stdin: hasInput };
  const frames = [encodeFrame(FRAME.head, Buffer.from(JSON.stringify(head)))];
  for (const part of splitPayload(Buffer.from(stdin ?? ''))) frames.push(encodeFrame(FRAME.stdin, part));
  if (stdin !== undefined && !isInteractive) frames.push(encodeFrame(FRAME.stdinEnd));
  return frames;
}
