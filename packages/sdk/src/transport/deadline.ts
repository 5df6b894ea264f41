import { CoppiceError } from './errors.ts';
import { sleep } from './sleep.ts';

/** Longest delay of a timer. A longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The single signal of a call. It is aborted when the time of the call has elapsed or when the caller's signal is
 * aborted. The time can be restarted (a transfer makes progress) or held (the caller's own stream is awaited).
 * `AbortSignal.any` is not used: Node has it only since 20.3, and it leaks memory on a long-lived caller signal with
 * every call.
 */
export class Deadline {
  readonly #label: string;
  readonly #controller = new AbortController();
  readonly #callerSignal: AbortSignal | undefined;
  readonly #onCallerAbort = (): void => this.#controller.abort(this.#callerSignal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #endsAtMs = Infinity;
  #ended = false;

  /** Starts the time. `label` is the method and path of the call, for the message of the error. */
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

  /** Milliseconds until the time has elapsed. Infinity while the deadline is held. */
  get remainingMs(): number {
    return this.#endsAtMs - Date.now();
  }

  /** Restarts the time with `timeoutMs`. Has no effect after `end()`. */
  restart(timeoutMs: number): void {
    this.hold();
    if (this.#ended) return;
    this.#endsAtMs = Date.now() + timeoutMs;
    this.#timer = setTimeout(() => this.#expire(timeoutMs), Math.min(timeoutMs, MAX_TIMER_MS));
  }

  /** Stops the time until the next `restart()`. */
  hold(): void {
    clearTimeout(this.#timer);
    this.#endsAtMs = Infinity;
  }

  /** Ends the deadline for good. Call it when the call is over; otherwise the timer keeps the process alive. */
  end(): void {
    this.#ended = true;
    this.hold();
    this.#callerSignal?.removeEventListener('abort', this.#onCallerAbort);
  }

  /** Returns the reason of the abort if the signal is aborted, else the given error. */
  reasonFor(error: unknown): unknown {
    return this.signal.aborted ? this.signal.reason : error;
  }

  /** Waits. Rejects with the reason of the abort if the signal is aborted first. */
  sleep(ms: number): Promise<void> {
    return sleep(ms, this.signal);
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
