/** Calls of the runner whose answer is one JSON value. */
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import { readBounded } from './read-stream.ts';
import { cutOff, type RunnerConnection, type RunnerRequest } from './runner-connection.ts';

const CALL_DEADLINE_MS = 10_000;
const MAX_BODY_BYTES = 8 << 20;

const JSON_HEADERS = { 'content-type': 'application/json' };

export async function callJson<T>(
  connection: RunnerConnection,
  request: RunnerRequest,
  schema: z.ZodType<T>,
): Promise<T> {
  const text = (await callBytes(connection, request)).toString('utf8');
  // A runner that stops ends its streams without an error. A part of an object is no valid JSON.
  if (!isJson(text))
    throw cutOff(request, new Error(`the answer of the runner ends after ${text.length} characters`));
  return parseRunnerJson(text, schema);
}

/** Returns the body of an answer. Throws the error of a lost connection if the body is cut off or late. */
export async function callBytes(connection: RunnerConnection, request: RunnerRequest): Promise<Buffer> {
  const { stream } = await connection.request(request);
  try {
    return await readBounded(stream, { maxBytes: MAX_BODY_BYTES, deadlineMs: CALL_DEADLINE_MS });
  } catch (error) {
    throw cutOff(request, new Error('the answer of the runner was cut off', { cause: error }));
  }
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
    throw new AppError('internal', 'the runner violated its protocol', { cause: error });
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
