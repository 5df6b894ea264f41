/** Continues a stream after its connection was lost. */
import { CoppiceError } from './errors.ts';
import { sleep } from './sleep.ts';

const FIRST_DELAY_MS = 200;
export const MAX_DELAY_MS = 10_000;
/** The connection, the service or its runner was lost; what the stream reports continues. */
const LOST = new Set([
  'connection_failed',
  'connection_refused',
  'timeout',
  'unavailable',
  'guest_unreachable',
]);

/** Returns whether another attempt may succeed. */
export function isLostConnection(error: unknown): boolean {
  return error instanceof CoppiceError && LOST.has(error.code);
}

/** Waits before an attempt. Rejects with the reason of the signal. */
export function waitForAttempt(failures: number, signal: AbortSignal | undefined): Promise<void> {
  return sleep(Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** failures), signal);
}
