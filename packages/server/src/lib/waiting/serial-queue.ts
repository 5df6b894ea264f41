import { AppError } from '@coppice/contract';

const MAX_WAITING = 64;

/** Runs tasks one after the other, in order of arrival. Callers can queue a bounded number, the service itself any. */
export class SerialQueue {
  #tail: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /** Runs a task of a caller. Rejects with `rate_limited` if too many tasks wait. */
  runBounded<T>(task: () => Promise<T>): Promise<T> {
    if (this.#waiting >= MAX_WAITING) {
      return Promise.reject(new AppError('rate_limited', 'too many operations wait for this sandbox'));
    }
    return this.run(task);
  }

  run<T>(task: () => Promise<T>): Promise<T> {
    this.#waiting += 1;
    const result = this.#tail.then(task).finally(() => {
      this.#waiting -= 1;
    });
    this.#tail = result.catch(() => undefined);
    return result;
  }
}
