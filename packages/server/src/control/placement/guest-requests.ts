/** Requests that the runner passes on to the agent of a guest, which may answer anything. */
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { readBounded, readLines } from './read-stream.ts';
import { vmPath, type RunnerAnswer, type RunnerConnection, type RunnerRequest } from './runner-connection.ts';
import { fromGuest } from './runner-error.ts';

/** Of the body of a whole answer, once its head has come. */
const BODY_DEADLINE_MS = 30_000;
/** The agent sends an empty line every 30 s. */
const WATCH_IDLE_MS = 100_000;

export interface GuestAnswer<T> {
  schema: z.ZodType<T>;
  maxBytes: number;
}

export interface GuestLines<T> {
  schema: z.ZodType<T>;
  maxLineBytes: number;
  signal: AbortSignal;
}

/** Builds the path of a route of the agent, with a query of the fields that are not undefined. */
export function agentPath(
  sandboxId: string,
  route: string,
  fields?: Record<string, string | undefined>,
): string {
  const path = `${vmPath(sandboxId)}/agent/${route}`;
  if (fields === undefined) return path;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) if (value !== undefined) query.set(name, value);
  return `${path}?${query.toString()}`;
}

/** Resolves with the answer's head; errors are those that a guest may cause. */
export async function askGuest(connection: RunnerConnection, request: RunnerRequest): Promise<RunnerAnswer> {
  try {
    return await connection.request(request);
  } catch (error) {
    throw fromGuest(error);
  }
}

/** Reads a whole answer within the deadline of the request. */
export async function readGuest<T>(
  connection: RunnerConnection,
  request: RunnerRequest,
  expected: GuestAnswer<T>,
): Promise<T> {
  const end = performance.now() + request.headDeadlineMs;
  const answer = await askGuest(connection, request);
  return readGuestBody(answer, expected, Math.max(1, end - performance.now()));
}

/** Reads the body of an answer within `deadlineMs`, at most 30 s. */
export async function readGuestBody<T>(
  { stream }: RunnerAnswer,
  { schema, maxBytes }: GuestAnswer<T>,
  deadlineMs = BODY_DEADLINE_MS,
): Promise<T> {
  const limits = { maxBytes, deadlineMs: Math.min(deadlineMs, BODY_DEADLINE_MS) };
  return parseGuest((await readBounded(stream, limits)).toString('utf8'), schema);
}

/** Yields the lines of a watch, until the stream ends or `signal`. */
export async function* readGuestLines<T>(
  { stream }: RunnerAnswer,
  { schema, maxLineBytes, signal }: GuestLines<T>,
): AsyncGenerator<T> {
  for await (const line of readLines(stream, { maxLineBytes, idleDeadlineMs: WATCH_IDLE_MS, signal }))
    yield parseGuest(line, schema);
}

function parseGuest<T>(text: string, schema: z.ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    throw brokenProtocol(cause);
  }
}

export function brokenProtocol(cause: unknown): AppError {
  return new AppError('guest_unreachable', 'the agent violated its protocol', { cause });
}
