/** Requests that the runner passes on to the agent of a guest, which may answer anything. */
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { readBounded } from './read-stream.ts';
import { vmPath, type RunnerAnswer, type RunnerConnection, type RunnerRequest } from './runner-connection.ts';
import { fromGuest } from './runner-error.ts';

export interface GuestAnswer<T> {
  schema: z.ZodType<T>;
  maxBytes: number;
}

/** Builds the path of a route of the agent, with a query. */
export function agentPath(sandboxId: string, route: string, query?: Record<string, string>): string {
  const path = `${vmPath(sandboxId)}/agent/${route}`;
  return query === undefined ? path : `${path}?${new URLSearchParams(query).toString()}`;
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
  { schema, maxBytes }: GuestAnswer<T>,
): Promise<T> {
  const end = performance.now() + request.headDeadlineMs;
  const { stream } = await askGuest(connection, request);
  const content = await readBounded(stream, { maxBytes, deadlineMs: Math.max(1, end - performance.now()) });
  return parseGuest(content.toString('utf8'), schema);
}

export function parseGuest<T>(text: string, schema: z.ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    throw new AppError('guest_unreachable', 'the agent violated its protocol', { cause });
  }
}
