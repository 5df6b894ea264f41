/** Calls of the runner whose answer is one JSON value. */
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { readBounded } from './read-stream.ts';
import type { RunnerConnection, RunnerRequest } from './runner-connection.ts';

export const CALL_DEADLINE_MS = 10_000;
export const MAX_BODY_BYTES = 8 << 20;

const JSON_HEADERS = { 'content-type': 'application/json' };

export async function callJson<T>(
  connection: RunnerConnection,
  request: RunnerRequest,
  schema: z.ZodType<T>,
): Promise<T> {
  const { stream } = await connection.request(request);
  const bytes = await readBounded(stream, { maxBytes: MAX_BODY_BYTES, deadlineMs: CALL_DEADLINE_MS });
  return parseRunnerJson(bytes.toString('utf8'), schema);
}

export function get(path: string): RunnerRequest {
  return { method: 'GET', path, headDeadlineMs: CALL_DEADLINE_MS };
}

export function send(
  method: 'PUT' | 'POST',
  path: string,
  body: object,
  headDeadlineMs: number = CALL_DEADLINE_MS,
): RunnerRequest {
  return { method, path, headers: JSON_HEADERS, body: Buffer.from(JSON.stringify(body)), headDeadlineMs };
}

export function vmPath(id: string): string {
  return `/vms/${encodeURIComponent(id)}`;
}

export function parseRunnerJson<T>(text: string, schema: z.ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    throw new AppError('internal', 'the runner sent what its protocol does not allow', { cause: error });
  }
}
