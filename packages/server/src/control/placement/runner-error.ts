/** Errors that come from the runner or, through it, from the agent in the guest. */
import { AppError, type ErrorCode } from '@coppice/contract';
import type { ClientHttp2Stream } from 'node:http2';
import { z } from 'zod';
import { RunnerError } from '../../lib/protocol/runner-protocol.ts';
import { REFUSED_STATUS, WireRefusal, WireRefusedError } from '../../lib/protocol/wire-headers.ts';
import { readBounded } from './read-stream.ts';

const MAX_ERROR_BYTES = 64 << 10;
const ERROR_BODY_DEADLINE_MS = 5_000;

const RefusalAnswer = z.object({ error: WireRefusal });
/**
 * The runner wraps its own errors. Those that it pipes from the agent are not wrapped
 * (docs/reference/agent-protocol.md).
 */
const ErrorAnswer = z.union([z.object({ error: RunnerError }).transform((body) => body.error), RunnerError]);

/** Reads the error from an answer with a status of 400 or more. */
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

/** Builds the error for a runner that is down or restarting: it has not received the request. */
export function unreachable(cause?: unknown): AppError {
  if (cause instanceof AppError) return cause;
  return new AppError('unavailable', 'the runner of this machine cannot be reached; try again', { cause });
}

/** Builds the error for a request without an answer. The runner may still carry it out, now or later. */
export function unheard(what: string, cause?: unknown): AppError {
  if (cause instanceof AppError) return cause;
  return new AppError('outcome_unknown', `${what}; whether the request was carried out is not known`, {
    cause,
  });
}

/** Returns whether no answer came: the request was not begun, or it may have been. */
export function isUnanswered(error: unknown): error is AppError {
  return error instanceof AppError && (error.code === 'unavailable' || error.code === 'outcome_unknown');
}

/** Converts the error of an operation that was undone: it may be tried again, whatever its outcome. */
export function takenBack(error: unknown, what: string): unknown {
  if (!(error instanceof AppError) || error.code !== 'outcome_unknown') return error;
  const message = `the runner of this machine gave no answer, and ${what} was given up; try again`;
  return new AppError('unavailable', message, { cause: error });
}

/** Errors that a guest can cause. Its agent cannot make the service answer 401 or 429. */
const GUEST_CODES: ReadonlySet<ErrorCode> = new Set([
  'invalid_request',
  'invalid_image',
  'not_found',
  'already_exists',
  'file_not_found',
  'file_error',
  'invalid_state',
  'agent_outdated',
  'range_not_satisfiable',
  'guest_unreachable',
  'port_unreachable',
  'disk_full',
  'unavailable',
  'outcome_unknown',
]);

/** Converts an error of a request to the agent: codes that a guest cannot cause become `guest_unreachable`. */
export function fromGuest(error: unknown): unknown {
  if (!(error instanceof AppError) || GUEST_CODES.has(error.code)) return error;
  return new AppError('guest_unreachable', 'the agent in the sandbox failed', { cause: error });
}

/** Builds the error for a request that the runner refused before it looked at it: its cause names the reason. */
function refused({ code, message }: z.infer<typeof WireRefusal>): AppError {
  const cause = new WireRefusedError(code, message);
  const isFenced = code === 'fenced';
  const text = isFenced
    ? 'another control owns the runner; try again'
    : `the runner cannot be used: ${message}`;
  return new AppError('unavailable', text, { cause });
}

function parseError(status: number, text: string): AppError {
  if (status === 416) return new AppError('range_not_satisfiable', 'the file has no bytes in that range');
  const parsed = parseJson(text);
  const refusal = RefusalAnswer.safeParse(parsed);
  if (status === REFUSED_STATUS && refusal.success) return refused(refusal.data.error);
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
