import { setTimeout as delay } from 'node:timers/promises';

/** A wait that took longer than it may. `step` names what was waited for. */
export class DeadlineError extends Error {
  constructor(step: string, timeoutMs: number) {
    super(`${step} took longer than ${timeoutMs} ms`);
    this.name = 'DeadlineError';
  }
}

let factor = 1;

/** Called once by each role, before it does anything: on a host that is far slower than others every deadline is longer. */
export function stretchDeadlines(by: number): void {
  factor = by;
}

/** As long as `timeoutMs` is on a host of ordinary speed; whole milliseconds, as PostgreSQL and the agent take them. */
export function stretched(timeoutMs: number): number {
  return Math.round(timeoutMs * factor);
}

/** A timer that is later than this was held up with all of the process, by its own work or by its machine. */
const HELD_UP_MS = 50;

/**
 * Settles as `work` does, or rejects with {@link DeadlineError} after `timeoutMs`, {@link stretched}. The work itself is not
 * stopped: `onTimeout` is where the caller does that.
 *
 * Timers run before what has arrived meanwhile is read. A process that was held up until the deadline takes as long again
 * to read it, but not more than `timeoutMs`.
 */
export async function withDeadline<T>(
  step: string,
  ordinaryMs: number,
  work: Promise<T>,
  onTimeout?: () => void,
): Promise<T> {
  const timeoutMs = stretched(ordinaryMs);
  const timer = Promise.withResolvers<never>();
  const endsAtMs = performance.now() + timeoutMs;
  const expire = (): void => {
    timer.reject(new DeadlineError(step, timeoutMs));
    onTimeout?.();
  };
  let handle = setTimeout(() => {
    const lateMs = performance.now() - endsAtMs;
    if (lateMs > HELD_UP_MS) handle = setTimeout(expire, Math.min(lateMs, timeoutMs));
    else expire();
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
  const timeoutMs = stretched(options.timeoutMs);
  const end = performance.now() + timeoutMs;
  for (;;) {
    const answer = await check();
    if (answer !== undefined) return answer;
    if (performance.now() > end) throw new DeadlineError(options.step, timeoutMs);
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
