import type { HostMoment } from '../../lib/host-clock.ts';
import type { Clock } from '../time/clock.ts';

const START: HostMoment = { bootId: 'manual', bootMs: 0, wallMs: 1_700_000_000_000 };

/** A clock that stands still until it is told to go on. */
export class ManualClock implements Clock {
  readonly bootId: string;
  #nowMs: number;
  /** Unix milliseconds at the boot, by a clock that may be set. */
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

  /** As an administrator does it; no interval becomes longer or shorter. */
  setWall(wallMs: number): void {
    this.#bootWallMs = wallMs - this.#nowMs;
  }

  schedule(delayMs: number, action: () => void): () => void {
    const timer = { at: this.#nowMs + delayMs, action };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** In how many milliseconds something falls due; Infinity when nothing is scheduled. */
  get nextInMs(): number {
    return Math.max(0, Math.min(...[...this.#timers].map(({ at }) => at)) - this.#nowMs);
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
