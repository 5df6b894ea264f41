import type { Clock } from '../sandbox/clock.ts';

/** A clock that stands still until it is told to go on. */
export class ManualClock implements Clock {
  readonly bootId = 'manual';
  #nowMs = 0;
  readonly #timers = new Set<{ at: number; action: () => void }>();

  monotonicMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return 1_700_000_000_000 + this.#nowMs;
  }

  schedule(delayMs: number, action: () => void): () => void {
    const timer = { at: this.#nowMs + delayMs, action };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Goes on by `ms`, calling what falls due in its order. */
  advance(ms: number): void {
    const end = this.#nowMs + ms;
    for (let next = this.#findNext(end); next !== undefined; next = this.#findNext(end)) {
      this.#nowMs = Math.max(this.#nowMs, next.at);
      this.#timers.delete(next);
      next.action();
    }
    this.#nowMs = end;
  }

  #findNext(end: number): { at: number; action: () => void } | undefined {
    let next: { at: number; action: () => void } | undefined;
    for (const timer of this.#timers)
      if (timer.at <= end && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  }
}
