import { setTimeout as delay } from 'node:timers/promises';

/**
 * Lets a loop pause until there is work. The loop calls {@link reset} before it looks for work: a wake that comes later
 * is not lost, but ends the next pause at once.
 */
export class WakeSignal {
  #woken = new AbortController();

  wake(): void {
    this.#woken.abort();
  }

  reset(): void {
    this.#woken = new AbortController();
  }

  /** Resolves when woken, when `stop` aborts, and at the latest after `maxMs`. Never rejects. */
  async pause(maxMs: number, stop: AbortSignal): Promise<void> {
    const signal = AbortSignal.any([stop, this.#woken.signal]);
    await delay(maxMs, undefined, { signal }).catch(() => undefined);
  }
}
