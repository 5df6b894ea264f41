/** Calls of the agent, through the runner, about commands that outlive their clients (docs/reference/agent-protocol.md). */
import type { Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { readBounded, readLines } from './read-stream.ts';
import {
  get,
  send,
  vmPath,
  type RunnerAnswer,
  type RunnerConnection,
  type RunnerRequest,
} from './runner-connection.ts';
import { fromGuest } from './runner-error.ts';

const HEAD_DEADLINE_MS = 30_000;
/** The agent keeps no more. */
const MAX_COMMANDS = 512;
const MAX_ANSWER_BYTES = 256 << 10;
const MAX_LINE_BYTES = 4096;
/** The agent sends an empty line every 30 s. */
const WATCH_IDLE_MS = 100_000;

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
    return this.#read(send('POST', agentPath(sandboxId), command, deadlineMs), GuestCommand);
  }

  /** Lists all that the agent remembers; nothing if the agent is older than such commands. */
  async list(sandboxId: string, deadlineMs = HEAD_DEADLINE_MS): Promise<GuestCommand[]> {
    const request = { ...get(agentPath(sandboxId)), headDeadlineMs: deadlineMs };
    try {
      return await this.#read(request, z.array(GuestCommand).max(MAX_COMMANDS));
    } catch (error) {
      if (error instanceof AppError && error.code === 'agent_outdated') return [];
      throw error;
    }
  }

  /** Yields commands that have ended, first all that the agent remembers, until `signal`. */
  async *watch(sandboxId: string, signal: AbortSignal): AsyncGenerator<GuestCommand> {
    const { stream } = await this.#ask({ ...get(agentPath(sandboxId, 'watch')), signal });
    const limits = { maxLineBytes: MAX_LINE_BYTES, idleDeadlineMs: WATCH_IDLE_MS, signal };
    for await (const line of readLines(stream, limits)) yield parseText(line, GuestCommand);
  }

  /** Opens output as frames. */
  openOutput(
    sandboxId: string,
    { id, position, follow }: { id: string; position: number; follow: boolean },
  ): Promise<RunnerAnswer> {
    const query = { id, position: String(position), follow: String(follow) };
    return this.#ask({ ...get(agentPath(sandboxId, 'output', query)), headDeadlineMs: HEAD_DEADLINE_MS });
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
    const answer = await this.#ask({
      method: 'POST',
      path: agentPath(sandboxId, 'stdin', { id, end: String(end) }),
      headers: { 'content-type': 'application/octet-stream' },
      body: content,
      headDeadlineMs: limits.deadlineMs,
      signal: limits.signal,
    });
    answer.stream.resume();
  }

  /** Signals the command's process group. */
  async signal(sandboxId: string, id: string, signal: string): Promise<void> {
    const answer = await this.#ask(
      send('POST', agentPath(sandboxId, 'signal', { id }), { signal }, HEAD_DEADLINE_MS),
    );
    answer.stream.resume();
  }

  /** Reads an answer within the deadline of the request. */
  async #read<T>(request: RunnerRequest, schema: z.ZodType<T>): Promise<T> {
    const end = performance.now() + request.headDeadlineMs;
    const { stream } = await this.#ask(request);
    const deadlineMs = Math.max(1, end - performance.now());
    const content = await readBounded(stream, { maxBytes: MAX_ANSWER_BYTES, deadlineMs });
    return parseText(content.toString('utf8'), schema);
  }

  async #ask(request: RunnerRequest): Promise<RunnerAnswer> {
    try {
      return await this.#connection.request(request);
    } catch (error) {
      throw fromGuest(error);
    }
  }
}

function agentPath(sandboxId: string, route?: string, query?: Record<string, string>): string {
  const path = `${vmPath(sandboxId)}/agent/commands${route === undefined ? '' : `/${route}`}`;
  return query === undefined ? path : `${path}?${new URLSearchParams(query).toString()}`;
}

function parseText<T>(text: string, schema: z.ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    throw new AppError('guest_unreachable', 'the agent violated its protocol', { cause });
  }
}
