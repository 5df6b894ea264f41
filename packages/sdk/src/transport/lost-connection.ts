/** Continues a stream after its connection was lost. */
import { CoppiceError } from './errors.ts';
import { sleep } from './sleep.ts';

const FIRST_DELAY_MS = 200;
const MAX_DELAY_MS = 10_000;
/** The connection, the service or its runner was lost; what the stream reports continues. */
const LOST = new Set([
  'connection_failed',
  'connection_refused',
  'timeout',
  'unavailable',
  'guest_unreachable',
]);

/** Returns whether another attempt may succeed. */
export function isLostConnection(error: unknown): boolean {
  return error instanceof CoppiceError && LOST.has(error.code);
}

/**
 * Counts the attempts to continue a stream, one after the other. An item that was received, or a stream that lasted, makes the
 * count start anew. The time without an answer does not: a host that is silent is given up like one that refuses.
 */
export class Persistence {
  readonly #maxFailures: number;
  #failures = 0;

  constructor(maxFailures: number) {
    this.#maxFailures = maxFailures;
  }

  noteProgress(): void {
    this.#failures = 0;
  }

  /** Yields the items of a stream whose answer has begun. */
  async *watch<Item>(stream: AsyncIterable<Item>): AsyncGenerator<Item, void, undefined> {
    const beganAtMs = Date.now();
    try {
      yield* stream;
    } finally {
      if (Date.now() - beganAtMs > MAX_DELAY_MS) this.noteProgress();
    }
  }

  /** Waits before the next attempt. Rejects with the error if there is to be none, and with the reason of the signal. */
  async waitAfter(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    if (!isLostConnection(error) || this.#failures >= this.#maxFailures) throw error;
    await waitForAttempt(this.#failures, signal);
    this.#failures += 1;
  }
}

/** Waits before an attempt. Rejects with the reason of the signal. */
export function waitForAttempt(failures: number, signal: AbortSignal | undefined): Promise<void> {
  return sleep(Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** failures), signal);
}
