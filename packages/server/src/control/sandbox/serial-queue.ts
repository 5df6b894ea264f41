import { AppError } from '@coppice/contract';

const MAX_WAITING = 64;

/** Runs one task after the other, in the order they came. */
export class SerialQueue {
  #tail: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  run<T>(task: () => Promise<T>): Promise<T> {
    if (this.#waiting >= MAX_WAITING) {
      return Promise.reject(new AppError('rate_limited', 'too many operations wait for this sandbox'));
    }
    this.#waiting += 1;
    const result = this.#tail.then(task).finally(() => {
      this.#waiting -= 1;
    });
    this.#tail = result.catch(() => undefined);
    return result;
  }
}
