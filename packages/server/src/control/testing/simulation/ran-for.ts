/** For how long a sandbox has run, as far as its callers can tell: from their questions and answers alone. Times in ms. */

export interface Bounds {
  atLeastMs: number;
  atMostMs: number;
}

export class RanFor {
  #atLeastMs = 0;
  #atMostMs = 0;
  /** It was told to run then, and nothing has been asked since that could end that. */
  #runsSince: number | undefined;
  /** It was asked to run then, and was not told that it no longer does. */
  #mayRunSince: number | undefined;

  /** `asked`: when the caller began to ask for it. */
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
