import { setTimeout as delay } from 'node:timers/promises';

/** A wait that took longer than it may. `step` names what was waited for. */
export class DeadlineError extends Error {
  constructor(step: string, timeoutMs: number) {
    super(`${step} took longer than ${timeoutMs} ms`);
    this.name = 'DeadlineError';
  }
}

/**
 * Settles as `work` does, or rejects with {@link DeadlineError} after `timeoutMs`. The work itself is not
 * stopped: `onTimeout` is where the caller does that.
 */
export async function withDeadline<T>(
  step: string,
  timeoutMs: number,
  work: Promise<T>,
  onTimeout?: () => void,
): Promise<T> {
  const timer = Promise.withResolvers<never>();
  const handle = setTimeout(() => {
    timer.reject(new DeadlineError(step, timeoutMs));
    onTimeout?.();
  }, timeoutMs);
  try {
    return await Promise.race([work, timer.promise]);
  } finally {
    clearTimeout(handle);
  }
}

export interface PollOptions {
  /** Names what is waited for in the error. */
  step: string;
  timeoutMs: number;
  intervalMs: number;
}

/** Calls `check` until it answers something other than undefined, at most until the deadline. */
export async function pollUntil<T>(
  options: PollOptions,
  check: () => T | undefined | Promise<T | undefined>,
): Promise<T> {
  const end = performance.now() + options.timeoutMs;
  for (;;) {
    const answer = await check();
    if (answer !== undefined) return answer;
    if (performance.now() > end) throw new DeadlineError(options.step, options.timeoutMs);
    await delay(options.intervalMs);
  }
}

/** Settles as `work` does, or rejects with the signal's reason when that comes first. The work goes on. */
export async function untilAborted<T>(signal: AbortSignal | undefined, work: Promise<T>): Promise<T> {
  if (signal === undefined) return work;
  const left = Promise.withResolvers<never>();
  const leave = (): void => left.reject(signal.reason as Error);
  if (signal.aborted) leave();
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await Promise.race([work, left.promise]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}
