/** Repeats requests to an S3 server, with growing pauses, until they succeed, are refused, or reach their deadline. */
import { setTimeout as delay } from 'node:timers/promises';
import { stretched, untilAborted, withDeadline } from '../../waiting/deadline.ts';
import { ObjectStoreError } from '../object-store-error.ts';
import { describeFault, type S3Fault } from './s3-fault.ts';

export interface S3Limits {
  /** One attempt, until the head of the answer has arrived. It includes the upload of a part. */
  attemptMs: number;
  /** All attempts of one request, and for reads the time without any progress. */
  deadlineMs: number;
  /** Longest time in which the body of an answer moves no byte. */
  idleMs: number;
  /** Size of the parts of a large object; S3 allows 5 MiB or more. A writer holds two in memory at most. */
  partBytes: number;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;

export interface RequestOptions<T> {
  /** Names what is done, for errors. */
  step: string;
  /** Gives a refusal a meaning: returns a result for it, or undefined if it is an error. */
  onRefusal?: (fault: S3Fault) => T | undefined;
  /** Default: the limit of the store. */
  deadlineMs?: number;
}

/** Time that is left for repetitions, with the pauses between them. */
export class Patience {
  readonly #timeoutMs: number;
  #endsAt: number;
  #failures = 0;

  constructor(ordinaryMs: number) {
    this.#timeoutMs = stretched(ordinaryMs);
    this.#endsAt = performance.now() + this.#timeoutMs;
  }

  /** Call after progress: the whole time is available again. */
  renew(): void {
    this.#failures = 0;
    this.#endsAt = performance.now() + this.#timeoutMs;
  }

  /** Waits before a repetition. Returns false if there is no time left. */
  async pause(signal: AbortSignal): Promise<boolean> {
    const longestMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#failures);
    this.#failures += 1;
    // A random pause keeps many writers from repeating at the same moment.
    const pauseMs = longestMs * (0.5 + Math.random() / 2);
    if (performance.now() + pauseMs >= this.#endsAt) return false;
    await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    return true;
  }
}

export class S3Requests implements Disposable {
  readonly limits: S3Limits;
  readonly #store: string;
  readonly #closing = new AbortController();

  /** `store` names the store in errors. */
  constructor(store: string, limits: S3Limits) {
    this.#store = store;
    this.limits = limits;
  }

  /** Aborts when the store closes. */
  get signal(): AbortSignal {
    return this.#closing.signal;
  }

  [Symbol.dispose](): void {
    this.#closing.abort(this.fail('any request', 'the store is closing', { isTransient: true }));
  }

  /** Throws ObjectStoreError. */
  async run<T>(
    { step, onRefusal, deadlineMs = this.limits.deadlineMs }: RequestOptions<T>,
    attempt: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const patience = new Patience(deadlineMs);
    for (;;) {
      this.signal.throwIfAborted();
      try {
        return await this.#once(step, attempt);
      } catch (error) {
        this.signal.throwIfAborted();
        if (error instanceof ObjectStoreError) throw error;
        const fault = describeFault(error);
        const meaning = fault.isTransient ? undefined : onRefusal?.(fault);
        if (meaning !== undefined) return meaning;
        if (!fault.isTransient || !(await patience.pause(this.signal)))
          throw this.fail(step, fault.text, fault);
      }
    }
  }

  /** Builds an error with the name of the store. Of the cause only the given text is kept. */
  fail(step: string, text: string, { isTransient }: { isTransient: boolean }): ObjectStoreError {
    return new ObjectStoreError(`object store ${this.#store}: ${step}: ${text}`, { isTransient });
  }

  async #once<T>(step: string, attempt: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const late = new AbortController();
    const work = attempt(AbortSignal.any([this.signal, late.signal]));
    // The SDK ignores the signal while it looks for credentials.
    return withDeadline(step, this.limits.attemptMs, untilAborted(this.signal, work), () => late.abort());
  }
}
