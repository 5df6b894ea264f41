import type { CoppiceError } from './errors.ts';

/** If the service asks for a longer wait, the client does not retry, so that the caller learns of the error at once. */
const MAX_RETRY_AFTER_MS = 30_000;
const FIRST_BACKOFF_MS = 200;
const MAX_CAUSE_DEPTH = 5;

/**
 * Returns the milliseconds to wait before a retry, or undefined when a retry may do harm or is useless. The client
 * retries only refused connections, and 429 and 503 with Retry-After: the service sends these answers when it has not
 * carried out the request, or has undone it. After a 504, a deadline or a broken connection the service may have
 * carried out the request.
 */
export function retryDelayMs(error: CoppiceError, attempt: number): number | undefined {
  const backoffMs = FIRST_BACKOFF_MS * 2 ** attempt * (1 + Math.random() / 4);
  if (error.code === 'connection_refused') return backoffMs;
  if (error.status !== 429 && error.status !== 503) return undefined;
  if (error.retryAfterMs === undefined || error.retryAfterMs > MAX_RETRY_AFTER_MS) return undefined;
  return Math.max(error.retryAfterMs, backoffMs);
}

/**
 * Returns true when fetch failed before it sent a byte. Each runtime reports this differently; a browser does not
 * report it.
 */
export function isConnectionRefused(error: unknown): boolean {
  let current = error;
  for (let depth = 0; depth < MAX_CAUSE_DEPTH && current instanceof Error; depth += 1) {
    const { code } = current as { code?: unknown };
    if (code === 'ECONNREFUSED' || code === 'ConnectionRefused') return true;
    if (/connection refused/i.test(current.message)) return true;
    current = current.cause;
  }
  return false;
}
