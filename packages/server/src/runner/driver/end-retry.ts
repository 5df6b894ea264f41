import type { Logger } from 'pino';

const FIRST_DELAY_MS = 1000;
const MAX_DELAY_MS = 30_000;

/**
 * Retries the end of a VM after a failure, such as a full disk, until it succeeds: after 1 s, 2 s, 4 s … 30 s. It logs
 * a warning for the failures 1, 2, 4, 8 …, so that an end that fails for days leaves only a few lines.
 */
export class EndRetry {
  readonly #log: Pick<Logger, 'warn'>;
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(log: Pick<Logger, 'warn'>) {
    this.#log = log;
  }

  /** Call after every failed attempt. Only the latest `attempt` is scheduled. */
  schedule(error: unknown, attempt: () => void): void {
    this.#failures += 1;
    const delayMs = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** (this.#failures - 1));
    if (Number.isInteger(Math.log2(this.#failures)))
      this.#log.warn(
        { err: error, failures: this.#failures, retry_in_ms: delayMs },
        'a VM could not be ended; trying again',
      );
    this.stop();
    this.#timer = setTimeout(attempt, delayMs).unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
