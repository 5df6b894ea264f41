/** How long a delivery waits after a failed attempt: the schedule that Standard Webhooks suggests, three days in all. */

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

export const RETRY_DELAYS_MS: readonly number[] = [
  5 * SECOND_MS,
  5 * MINUTE_MS,
  30 * MINUTE_MS,
  2 * HOUR_MS,
  5 * HOUR_MS,
  10 * HOUR_MS,
  14 * HOUR_MS,
  20 * HOUR_MS,
  24 * HOUR_MS,
];
/** Part of a delay by which it is longer or shorter, so that deliveries that failed together do not return together. */
const JITTER = 0.2;

/**
 * Returns the delay after so many failed tries; undefined if no other one follows. `chance` is from 0 to 1.
 */
export function findRetryDelayMs(
  delaysMs: readonly number[],
  tries: number,
  chance: number,
): number | undefined {
  const delayMs = delaysMs[tries - 1];
  return delayMs === undefined ? undefined : Math.round(delayMs * (1 + JITTER * (2 * chance - 1)));
}
