import { setTimeout as delay } from 'node:timers/promises';

/** A wait exceeded its deadline. `step` names the awaited event. */
export class DeadlineError extends Error {
  constructor(step: string, timeoutMs: number) {
    super(`${step} took longer than ${timeoutMs} ms`);
    this.name = 'DeadlineError';
  }
}

let factor = 1;

/** Sets the factor of all deadlines, for a much slower host. Each role calls this once, before it does anything. */
export function stretchDeadlines(by: number): void {
  factor = by;
}

/**
 * Returns `timeoutMs`, which is for a host of ordinary speed, times the factor. The result is in whole milliseconds,
 * because PostgreSQL and the agent require that.
 */
export function stretched(timeoutMs: number): number {
  return Math.round(timeoutMs * factor);
}

/** If a timer is later than this, the whole process was held up, by its own work or by its machine. */
const HELD_UP_MS = 50;

/**
 * Settles as `work` does, or rejects with {@link DeadlineError} after `ordinaryMs`, {@link stretched}. It does not stop
 * the work itself; the caller does that in `onTimeout`.
 *
 * Timers run before the event loop reads what arrived in the meantime. If the process was held up until after the
 * deadline, the deadline is extended by the delay, but by at most the timeout.
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
  /** Name of the awaited event, for the error. */
  step: string;
  timeoutMs: number;
  intervalMs: number;
}

/** Calls `check` until it returns something other than undefined. Throws {@link DeadlineError} after the timeout. */
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

/** Settles as `work` does, or rejects with the signal's reason if the signal comes first. The work continues. */
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
