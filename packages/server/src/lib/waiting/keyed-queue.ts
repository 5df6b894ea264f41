import { untilAborted } from './deadline.ts';
import { SerialQueue } from './serial-queue.ts';

/** Runs tasks with the same key one after the other, in order of arrival, and others at the same time. */
export class KeyedQueue {
  readonly #queues = new Map<string, { queue: SerialQueue; users: number }>();

  /** Rejects as soon as `signal` fires: a task that waits is not begun then, and one that runs is not waited for. */
  run<T>(key: string, task: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const entry = this.#queues.get(key) ?? { queue: new SerialQueue(), users: 0 };
    this.#queues.set(key, entry);
    entry.users += 1;
    const result = entry.queue
      .run(() => {
        signal?.throwIfAborted();
        return task();
      })
      .finally(() => {
        entry.users -= 1;
        if (entry.users === 0) this.#queues.delete(key);
      });
    result.catch(() => undefined);
    return untilAborted(signal, result);
  }
}
