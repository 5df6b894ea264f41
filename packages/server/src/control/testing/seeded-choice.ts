import { setTimeout as delay } from 'node:timers/promises';

/** Makes the same choices for the same seed: the upper bits of a linear congruential generator modulo 2^32. */
export class SeededChoice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** An integer in `[0, limit)`. */
  below(limit: number): number {
    this.#state = (Math.imul(this.#state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((this.#state / 2 ** 32) * limit);
  }

  of<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  async pause(longestMs: number): Promise<void> {
    await delay(this.below(longestMs));
  }
}
