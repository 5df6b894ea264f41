/** Calls of the agent, through the runner, about commands that outlive their clients (docs/reference/agent-protocol.md). */
import type { Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { agentPath, askGuest, readGuest, readGuestLines } from './guest-requests.ts';
import { get, send, type RunnerAnswer, type RunnerConnection } from './runner-connection.ts';

const HEAD_DEADLINE_MS = 30_000;
/** The agent keeps no more. */
const MAX_COMMANDS = 512;
const MAX_ANSWER_BYTES = 256 << 10;
const MAX_LINE_BYTES = 4096;

const Count = z.int().min(0);

/** A command as the agent reports it. The guest may lie about all of it. */
export const GuestCommand = z.object({
  id: z.string().max(64),
  age_ms: Count,
  ended_ago_ms: Count.default(0),
  exit: z.object({ exit_code: z.int().min(0).max(255), timed_out: z.boolean() }).optional(),
  output_bytes: Count,
  dropped_bytes: Count,
});
export type GuestCommand = z.infer<typeof GuestCommand>;

export interface StartGuestCommand {
  id: string;
  command: string;
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  user?: string | undefined;
  timeout_ms: number;
  stdin: string;
  keep_stdin: boolean;
  output_bytes: number;
}

export class RunnerCommands {
  readonly #connection: RunnerConnection;

  constructor(connection: RunnerConnection) {
    this.#connection = connection;
  }

  /** Starts a command. The same id again joins, or returns the command. */
  async start(sandboxId: string, command: StartGuestCommand, deadlineMs: number): Promise<GuestCommand> {
    return readGuest(this.#connection, send('POST', agentPath(sandboxId, 'commands'), command, deadlineMs), {
      schema: GuestCommand,
      maxBytes: MAX_ANSWER_BYTES,
    });
  }

  /** Lists all that the agent remembers; nothing if the agent is older than such commands. */
  async list(sandboxId: string, deadlineMs = HEAD_DEADLINE_MS): Promise<GuestCommand[]> {
    const request = { ...get(agentPath(sandboxId, 'commands')), headDeadlineMs: deadlineMs };
    const schema = z.array(GuestCommand).max(MAX_COMMANDS);
    try {
      return await readGuest(this.#connection, request, { schema, maxBytes: MAX_ANSWER_BYTES });
    } catch (error) {
      if (error instanceof AppError && error.code === 'agent_outdated') return [];
      throw error;
    }
  }

  /** Yields commands that have ended, first all that the agent remembers, until `signal`. */
  async *watch(sandboxId: string, signal: AbortSignal): AsyncGenerator<GuestCommand> {
    const request = {
      ...get(agentPath(sandboxId, 'commands/watch')),
      signal,
      isBackground: true,
      isEndless: true,
    };
    const answer = await askGuest(this.#connection, request);
    yield* readGuestLines(answer, { schema: GuestCommand, maxLineBytes: MAX_LINE_BYTES, signal });
  }

  /** Opens output as frames. */
  openOutput(
    sandboxId: string,
    { id, position, follow }: { id: string; position: number; follow: boolean },
  ): Promise<RunnerAnswer> {
    const query = { id, position: String(position), follow: String(follow) };
    return askGuest(this.#connection, {
      ...get(agentPath(sandboxId, 'commands/output', query)),
      headDeadlineMs: HEAD_DEADLINE_MS,
      isEndless: follow,
    });
  }

  /** Resolves when the command has taken the input. */
  async writeStdin(
    sandboxId: string,
    {
      id,
      end,
      content,
      ...limits
    }: { id: string; end: boolean; content: Readable; deadlineMs: number; signal: AbortSignal },
  ): Promise<void> {
    const answer = await askGuest(this.#connection, {
      method: 'POST',
      path: agentPath(sandboxId, 'commands/stdin', { id, end: String(end) }),
      headers: { 'content-type': 'application/octet-stream' },
      body: content,
      headDeadlineMs: limits.deadlineMs,
      signal: limits.signal,
    });
    answer.stream.resume();
  }

  /** Signals the command's process group. */
  async signal(sandboxId: string, id: string, signal: string): Promise<void> {
    const answer = await askGuest(
      this.#connection,
      send('POST', agentPath(sandboxId, 'commands/signal', { id }), { signal }, HEAD_DEADLINE_MS),
    );
    answer.stream.resume();
  }
}
