/** A command in a sandbox, from its start to its end. */
import type { ExecRequest } from '@coppice/contract';
import { z } from 'zod';
import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { GuestStream, parsePayload, splitPayload } from './guest-stream.ts';

/** The agent kills at the timeout; this much later the host no longer believes that it will. */
const AGENT_GRACE_MS = 10_000;
const TIMED_OUT: Exit = { exit_code: 124, timed_out: true };

export const Exit = z.object({ exit_code: z.int().min(0).max(255), timed_out: z.boolean() });
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
  readonly #stream: GuestStream;
  readonly #endsAtMs: number;

  private constructor(stream: GuestStream, timeoutMs: number) {
    this.#stream = stream;
    this.#endsAtMs = performance.now() + timeoutMs;
  }

  /** Resolves when the process has started; rejects with the agent's refusal. */
  static async start({ runner, id, request, isInteractive }: StartCommand): Promise<RunningCommand> {
    const stream = await GuestStream.open({
      request: (body) => runner.openProcess(id, 'exec', body),
      first: buildFirstFrames(request, isInteractive),
      isEnded: !isInteractive,
    });
    return new RunningCommand(stream, request.timeout * 1000);
  }

  /** Ends with the exit; throws `guest_unreachable` when there is none. To be read once. Leaving it kills the command. */
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

  /** Resolves when there is room for more. What comes after the end is thrown away. */
  async writeStdin(data: Buffer): Promise<void> {
    await this.#stream.sendBytes(FRAME.stdin, data);
  }

  async endStdin(): Promise<void> {
    await this.#stream.send(FRAME.stdinEnd);
  }

  /** A name without SIG, to the command's process group. It waits behind input that the process does not read. */
  async signal(name: string): Promise<void> {
    await this.#stream.send(FRAME.signal, Buffer.from(JSON.stringify({ signal: name })));
  }

  /** Idempotent; nothing happens to a command that has ended. */
  kill(): void {
    this.#stream.kill();
  }
}

/** Head and the standard input that the request has. */
function buildFirstFrames(request: ExecRequest, isInteractive: boolean): Buffer[] {
  const { command, cwd, env, user, timeout, stdin } = request;
  const hasInput = isInteractive || stdin !== undefined;
  const head = { command, cwd, env, user, timeout_ms: timeout * 1000, stdin: hasInput };
  const frames = [encodeFrame(FRAME.head, Buffer.from(JSON.stringify(head)))];
  for (const part of splitPayload(Buffer.from(stdin ?? ''))) frames.push(encodeFrame(FRAME.stdin, part));
  if (stdin !== undefined && !isInteractive) frames.push(encodeFrame(FRAME.stdinEnd));
  return frames;
}
