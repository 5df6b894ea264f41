import { CoppiceError } from './errors.ts';

/** The longest delay a timer takes; a longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The one signal of a call: aborted when its time is up or when the caller's signal is. The time can be set anew
 * (a transfer that moves) or held (while the caller's own stream is awaited). `AbortSignal.any` is not used: Node
 * has it only since 20.3, and on a long-lived signal of the caller it leaves something behind for every call.
 */
export class Deadline {
  readonly #label: string;
  readonly #controller = new AbortController();
  readonly #callerSignal: AbortSignal | undefined;
  readonly #onCallerAbort = (): void => this.#controller.abort(this.#callerSignal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #endsAtMs = Infinity;
  #ended = false;

  constructor(label: string, timeoutMs: number, callerSignal: AbortSignal | undefined) {
    this.#label = label;
    this.#callerSignal = callerSignal;
    callerSignal?.addEventListener('abort', this.#onCallerAbort, { once: true });
    if (callerSignal?.aborted === true) this.#onCallerAbort();
    this.restart(timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get remainingMs(): number {
    return this.#endsAtMs - Date.now();
  }

  restart(timeoutMs: number): void {
    this.hold();
    if (this.#ended) return;
    this.#endsAtMs = Date.now() + timeoutMs;
    this.#timer = setTimeout(() => this.#expire(timeoutMs), Math.min(timeoutMs, MAX_TIMER_MS));
  }

  hold(): void {
    clearTimeout(this.#timer);
    this.#endsAtMs = Infinity;
  }

  /** Ends the watch for good. Must be called once the call is over, or the timer keeps the process alive. */
  end(): void {
    this.#ended = true;
    this.hold();
    this.#callerSignal?.removeEventListener('abort', this.#onCallerAbort);
  }

  /** Why the call ended: the abort's reason if there was one, else the error at hand. */
  reasonFor(error: unknown): unknown {
    return this.signal.aborted ? this.signal.reason : error;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.signal.removeEventListener('abort', onAbort);
        resolve();
      }, ms);
      const onAbort = (): void => {
        clearTimeout(timer);
        reject(this.signal.reason as Error);
      };
      this.signal.addEventListener('abort', onAbort, { once: true });
      if (this.signal.aborted) onAbort();
    });
  }

  #expire(timeoutMs: number): void {
    this.#controller.abort(
      new CoppiceError(`${this.#label}: timed out after ${Math.round(timeoutMs)} ms`, {
        status: 0,
        code: 'timeout',
      }),
    );
  }
}
