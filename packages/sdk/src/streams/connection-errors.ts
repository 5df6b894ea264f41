/**
 * Converts the end of a WebSocket to errors of the client. A WebSocket does not expose the HTTP status of a refused
 * handshake.
 */
import { CoppiceError, type ErrorCode } from '../transport/errors.ts';
import { isConnectionRefused } from '../transport/retry.ts';
import { UNREAD_LIMIT_BYTES } from './unread-queue.ts';
import type { WebSocketLikeEvent } from './web-socket.ts';

/** https://www.rfc-editor.org/rfc/rfc6455#section-11.7 */
const SERVICE_RESTART = 1012;

/** Returns an error without an HTTP status. `label` is the method and path. */
export function buildStreamError(
  label: string,
  code: ErrorCode,
  what: string,
  cause?: unknown,
): CoppiceError {
  return new CoppiceError(`${label}: ${what}`, { status: 0, code, cause });
}

/** Returns the error for an `error` event. */
export function buildErrorEventError(
  { error, message }: WebSocketLikeEvent,
  { label, isOpen, redact }: { label: string; isOpen: boolean; redact: (text: string) => string },
): CoppiceError {
  const failure = error instanceof Error ? error : new Error(message ?? '');
  const why = failure.message === '' ? '' : `: ${redact(failure.message)}`;
  if (isOpen) return buildStreamError(label, 'connection_failed', `the connection failed${why}`);
  const code = isConnectionRefused(failure) ? 'connection_refused' : 'connection_failed';
  return buildStreamError(label, code, `no connection to the service${why}`);
}

/** Returns the error for a close event that follows no final or error frame. */
export function buildCloseError(label: string, { code = 0, reason = '' }: WebSocketLikeEvent): CoppiceError {
  const why = `${code}${reason === '' ? '' : ` (${reason})`}`;
  if (code === SERVICE_RESTART)
    return buildStreamError(label, 'unavailable', `the service restarts and closed the connection: ${why}`);
  return buildStreamError(label, 'connection_failed', `the connection was closed too early: ${why}`);
}

/** Returns the error for a message that the client cannot parse. */
export function buildMessageError(label: string, cause: unknown): CoppiceError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return buildStreamError(label, 'invalid_response', `a message is not valid: ${why}`, cause);
}

/** Returns the error for output that was not read in time. */
export function buildSlowError(label: string): CoppiceError {
  const what = `over ${UNREAD_LIMIT_BYTES / 2 ** 20} MiB of output were not read`;
  const remedy = 'a standard WebSocket cannot make the sender wait: read faster, or use stream(), which can';
  return buildStreamError(label, 'reader_too_slow', `${what}; ${remedy}`);
}
