/** Bounds for how long a sandbox has run, from the requests and answers of its callers alone. Times in ms. */

export interface Bounds {
  atLeastMs: number;
  atMostMs: number;
}

export class RanFor {
  #atLeastMs = 0;
  #atMostMs = 0;
  /** When an answer said that it runs; undefined after a request that could end that. */
  #runsSince: number | undefined;
  /** When a request to run it was sent; undefined after an answer that it no longer runs. */
  #mayRunSince: number | undefined;

  /** `asked`: when the caller sent the request for it. */
  noteRunning(now: number, asked = now): void {
    this.#mayRunSince = Math.min(this.#mayRunSince ?? asked, asked);
    this.#runsSince ??= now;
  }

  noteUncertain(now: number): void {
    this.#mayRunSince ??= now;
    this.#atLeastMs = this.countTo(now).atLeastMs;
    this.#runsSince = undefined;
  }

  noteStopped(now: number): void {
    const { atLeastMs, atMostMs } = this.countTo(now);
    this.#atLeastMs = atLeastMs;
    this.#atMostMs = atMostMs;
    this.#runsSince = undefined;
    this.#mayRunSince = undefined;
  }

  countTo(now: number): Bounds {
    return {
      atLeastMs: this.#atLeastMs + now - (this.#runsSince ?? now),
      atMostMs: this.#atMostMs + now - (this.#mayRunSince ?? now),
    };
  }
}
