import type { CoppiceError } from './errors.ts';

/** A service that asks for a longer wait than this gets no retry: the caller should know at once. */
const MAX_RETRY_AFTER_MS = 30_000;
const FIRST_BACKOFF_MS = 200;
const MAX_CAUSE_DEPTH = 5;

/**
 * How long to wait before trying again, or undefined when another try may do harm or is no use. Only answers that say when
 * to come back (429 and 503 with Retry-After) and refused connections count: the service gives them when it has not carried
 * the request out, or has taken it back. After 504, a deadline or a connection that broke it may have been carried out.
 */
export function retryDelayMs(error: CoppiceError, attempt: number): number | undefined {
  const backoffMs = FIRST_BACKOFF_MS * 2 ** attempt * (1 + Math.random() / 4);
  if (error.code === 'connection_refused') return backoffMs;
  if (error.status !== 429 && error.status !== 503) return undefined;
  if (error.retryAfterMs === undefined || error.retryAfterMs > MAX_RETRY_AFTER_MS) return undefined;
  return Math.max(error.retryAfterMs, backoffMs);
}

/** Whether fetch failed before a byte was sent. Each runtime says it in its own way; a browser does not say it. */
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
