import type { ControlLimits } from '../control-config.ts';
import { insist } from '../placement/insist.ts';

export interface Outliving {
  limits: Pick<ControlLimits, 'runnerOutageDeadlineMs'>;
  signal: AbortSignal;
  /** When the build must be done, in `performance.now()`. */
  deadlineMs: number;
}

/** Repeats a request that may be sent twice while the runner restarts: the sandbox survives that. */
export async function outliveRunner<T>(
  { limits, signal, deadlineMs }: Outliving,
  attempt: () => Promise<T>,
): Promise<T> {
  const patience = {
    deadlineMs: Math.max(1, deadlineMs - performance.now()),
    outageDeadlineMs: limits.runnerOutageDeadlineMs,
    onRepeat: () => undefined,
  };
  try {
    return await insist(patience, async () => {
      try {
        return await attempt();
      } catch (error) {
        // Not repeated.
        throw signal.aborted ? new Error('the build was stopped', { cause: error }) : error;
      }
    });
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}
