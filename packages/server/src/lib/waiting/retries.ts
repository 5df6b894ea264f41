import { setTimeout as delay } from 'node:timers/promises';

/**
 * Calls `attempt` again after each of the pauses, until it succeeds. `onFailure` is called before each pause, and ends the
 * attempts by throwing. Rejects with the error of the last attempt.
 */
export async function withRetries<T>(
  pausesMs: readonly number[],
  attempt: () => Promise<T>,
  onFailure: (error: unknown) => void,
): Promise<T> {
  for (const pauseMs of pausesMs) {
    try {
      return await attempt();
    } catch (error) {
      onFailure(error);
      await delay(pauseMs);
    }
  }
  return attempt();
}
