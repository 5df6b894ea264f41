/** Repeats a request that gets no answer, even if the runner restarts meanwhile. */
import { setTimeout as delay } from 'node:timers/promises';
import type { AppError } from '@coppice/contract';
import { isUnanswered } from './runner-error.ts';

const RETRY_DELAY_MS = 250;

export interface Insistence {
  /** Deadline of the whole operation. */
  deadlineMs: number;
  /** Longest outage of the runner that the operation waits for. */
  outageDeadlineMs: number;
  onRepeat: () => void;
}

/**
 * Repeats a request that gets no answer. The runner continues what it has begun when the connection breaks, and a
 * request with the same ids joins it, so the caller does not see a short outage. Throws `outcome_unknown` if one of the
 * attempts may have reached the runner.
 */
export async function insist<T>(
  { deadlineMs, outageDeadlineMs, onRepeat }: Insistence,
  attempt: (leftMs: number) => Promise<T>,
): Promise<T> {
  const end = performance.now() + deadlineMs;
  let outageEnd: number | undefined;
  let unheard: AppError | undefined;
  for (;;) {
    const attemptedAt = performance.now();
    try {
      return await attempt(Math.max(1, end - attemptedAt));
    } catch (error) {
      if (!isUnanswered(error)) throw error;
      if (error.code === 'outcome_unknown') unheard = error;
      // A long attempt had reached the runner: the outage begins at the end of the attempt.
      if (performance.now() - attemptedAt > 2 * RETRY_DELAY_MS) outageEnd = undefined;
      outageEnd ??= performance.now() + outageDeadlineMs;
      if (performance.now() > Math.min(end, outageEnd)) throw unheard ?? error;
      onRepeat();
      await delay(RETRY_DELAY_MS);
    }
  }
}
