/** Errors that come from the runner or, through it, from the agent in the guest. */
import { AppError, type ErrorCode } from '@coppice/contract';
import type { ClientHttp2Stream } from 'node:http2';
import { z } from 'zod';
import { RunnerError } from '../../lib/protocol/runner-protocol.ts';
import { readBounded } from './read-stream.ts';

const MAX_ERROR_BYTES = 64 << 10;
const ERROR_BODY_DEADLINE_MS = 5_000;

/** The runner wraps its errors; what it pipes from the agent is bare (docs/reference/agent-protocol.md). */
const ErrorAnswer = z.union([z.object({ error: RunnerError }).transform((body) => body.error), RunnerError]);

/** The error of an answer with a status of 400 or more. */
export async function errorFromAnswer(status: number, stream: ClientHttp2Stream): Promise<AppError> {
  const text = await readBounded(stream, {
    maxBytes: MAX_ERROR_BYTES,
    deadlineMs: ERROR_BODY_DEADLINE_MS,
  }).then(
    (bytes) => bytes.toString('utf8'),
    (error: unknown) => String(error),
  );
  return parseError(status, text);
}

/** The runner is away, not started or restarting: it has not been asked. */
export function unreachable(cause?: unknown): AppError {
  if (cause instanceof AppError) return cause;
  return new AppError('unavailable', 'the runner of this machine cannot be reached; try again', { cause });
}

/** No answer came to a request that was sent. It may be carried out all the same, now or later. */
export function unheard(what: string, cause?: unknown): AppError {
  if (cause instanceof AppError) return cause;
  return new AppError('outcome_unknown', `${what}; whether the request was carried out is not known`, {
    cause,
  });
}

/** Nothing is known of what was asked for: it was not begun, or it may have been. */
export function isUnanswered(error: unknown): error is AppError {
  return error instanceof AppError && (error.code === 'unavailable' || error.code === 'outcome_unknown');
}

/** For what has been taken back: it may be asked for again, whatever became of it. */
export function takenBack(error: unknown, what: string): unknown {
  if (!(error instanceof AppError) || error.code !== 'outcome_unknown') return error;
  const message = `the runner of this machine gave no answer, and ${what} was given up; try again`;
  return new AppError('unavailable', message, { cause: error });
}

/** What a guest may be blamed for. Its agent cannot make the service answer 401 or 429. */
const GUEST_CODES: ReadonlySet<ErrorCode> = new Set([
  'invalid_request',
  'invalid_image',
  'not_found',
  'file_not_found',
  'file_error',
  'invalid_state',
  'range_not_satisfiable',
  'guest_unreachable',
  'port_unreachable',
  'disk_full',
  'unavailable',
  'outcome_unknown',
]);

/** Narrows an error of a request that was piped to the agent to the codes that can be meant. */
export function fromGuest(error: unknown): unknown {
  if (!(error instanceof AppError) || GUEST_CODES.has(error.code)) return error;
  return new AppError('guest_unreachable', 'the agent in the sandbox failed', { cause: error });
}

function parseError(status: number, text: string): AppError {
  if (status === 416) return new AppError('range_not_satisfiable', 'the file has no bytes in that range');
  const parsed = parseJson(text);
  const body = ErrorAnswer.safeParse(parsed);
  if (body.success) return new AppError(body.data.code, body.data.message);
  return new AppError('internal', 'the runner failed', {
    cause: new Error(`status ${status}: ${text.slice(0, 500)}`),
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
