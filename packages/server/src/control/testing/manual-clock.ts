import type { HostMoment } from '../../lib/host-clock.ts';
import type { Clock } from '../time/clock.ts';

const START: HostMoment = { bootId: 'manual', bootMs: 0, wallMs: 1_700_000_000_000 };

/** A clock that stands still until a test advances it. */
export class ManualClock implements Clock {
  readonly bootId: string;
  #nowMs: number;
  /** Unix milliseconds at the boot, by the wall clock, which may be set. */
  #bootWallMs: number;
  readonly #timers = new Set<{ at: number; action: () => void }>();

  constructor({ bootId, bootMs, wallMs }: HostMoment = START) {
    this.bootId = bootId;
    this.#nowMs = bootMs;
    this.#bootWallMs = wallMs - bootMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return this.#bootWallMs + this.#nowMs;
  }

  /** Sets the wall clock, as an administrator does; no interval becomes longer or shorter. */
  setWall(wallMs: number): void {
    this.#bootWallMs = wallMs - this.#nowMs;
  }

  schedule(delayMs: number, action: () => void): () => void {
    const timer = { at: this.#nowMs + delayMs, action };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Milliseconds until the next timer falls due; Infinity when nothing is scheduled. */
  get nextInMs(): number {
    return Math.max(0, Math.min(...[...this.#timers].map(({ at }) => at)) - this.#nowMs);
  }

  /** Advances the clock by `ms`, and calls the timers that fall due, in their order. */
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
