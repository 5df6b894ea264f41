import { DeadlineError, pollUntil } from '../packages/server/src/lib/waiting/deadline.ts';
import { SetupError } from '../scripts/setup/setup-error.mjs';

export interface Wait {
  timeoutMs: number;
  intervalMs: number;
  /** Message of the SetupError that is thrown after `timeoutMs`. */
  failure: () => string;
}

/** Polls until `check` returns a value other than undefined. */
export async function waitFor<T>(
  { timeoutMs, intervalMs, failure }: Wait,
  check: () => T | undefined | Promise<T | undefined>,
): Promise<T> {
  try {
    return await pollUntil({ step: 'the wait', timeoutMs, intervalMs }, check);
  } catch (error) {
    throw error instanceof DeadlineError ? new SetupError(failure()) : error;
  }
}
