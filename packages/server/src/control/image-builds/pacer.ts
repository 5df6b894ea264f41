import { setImmediate } from 'node:timers/promises';

/** Milliseconds of work after which others get their turn. */
const BURST_MS = 5;

/** Lets the event loop run during long loops, and ends them when a signal fires. */
export class Pacer {
  readonly #signal: AbortSignal;
  #sinceMs = performance.now();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** To be awaited in each round, if it is defined. Throws the reason of the signal. */
  pause(): Promise<void> | undefined {
    this.#signal.throwIfAborted();
    return performance.now() - this.#sinceMs < BURST_MS ? undefined : this.#wait();
  }

  async #wait(): Promise<void> {
    await setImmediate();
    this.#signal.throwIfAborted();
    this.#sinceMs = performance.now();
  }
}
