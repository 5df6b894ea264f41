import { AppError } from '@coppice/contract';

export interface SlotsOptions {
  maxRunning: number;
  /** Limit for one owner; default: only the limit for all applies. */
  maxRunningOfOwner?: number;
  maxWaiting: number;
  /** Limit for one owner; default: only the limit for all applies. */
  maxWaitingOfOwner?: number;
}

interface Waiter {
  owner: string;
  start: () => void;
}

/**
 * Runs a bounded number of tasks and queues a bounded number; further ones are refused with `capacity`. A free slot is
 * given to the owner with the fewest slots, and among equal owners to the first in the queue.
 */
export class Slots {
  readonly #options: SlotsOptions;
  readonly #what: string;
  readonly #waiting: Waiter[] = [];
  /** Slots in use, by owner. */
  readonly #held = new Map<string, number>();
  #running = 0;

  constructor(what: string, options: SlotsOptions) {
    this.#what = what;
    this.#options = options;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Whether the next task of any owner would be refused. */
  get isFull(): boolean {
    const { maxRunning, maxWaiting } = this.#options;
    return this.#running >= maxRunning && this.waiting >= maxWaiting;
  }

  /**
   * Runs `work` when a slot is free. The signal ends the waiting, not the work. Throws `capacity` if the queue is full.
   */
  async run<T>(signal: AbortSignal, work: () => Promise<T>, owner = ''): Promise<T> {
    const release = await this.acquire(signal, owner);
    try {
      return await work();
    } finally {
      release();
    }
  }

  /**
   * Waits for a slot. Returns a function that releases the slot; call it once. Throws `capacity` if the queue is full.
   */
  async acquire(signal: AbortSignal, owner = ''): Promise<() => void> {
    await this.#wait(signal, owner);
    return () => this.#release(owner);
  }

  #wait(signal: AbortSignal, owner: string): Promise<void> {
    signal.throwIfAborted();
    if (this.#running < this.#options.maxRunning && this.#mayRun(owner)) {
      this.#take(owner);
      return Promise.resolve();
    }
    const { maxWaitingOfOwner = Infinity } = this.#options;
    const others = this.#waiting.filter((waiter) => waiter.owner === owner).length;
    if (this.waiting >= this.#options.maxWaiting || others >= maxWaitingOfOwner) {
      throw new AppError('capacity', `too many ${this.#what} are waiting; try again later`);
    }
    return new Promise((resolve, reject) => {
      const start = () => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      const waiter = { owner, start };
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        reject(signal.reason as Error);
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#waiting.push(waiter);
    });
  }

  #take(owner: string): void {
    this.#running += 1;
    this.#held.set(owner, this.#heldBy(owner) + 1);
  }

  #heldBy(owner: string): number {
    return this.#held.get(owner) ?? 0;
  }

  #mayRun(owner: string): boolean {
    const { maxRunningOfOwner = Infinity } = this.#options;
    return this.#heldBy(owner) < maxRunningOfOwner;
  }

  /** Releases a slot and gives it directly to a waiter, if there is one. */
  #release(owner: string): void {
    this.#running -= 1;
    const others = this.#heldBy(owner) - 1;
    if (others > 0) this.#held.set(owner, others);
    else this.#held.delete(owner);
    const [next] = this.#waiting
      .filter((waiter) => this.#mayRun(waiter.owner))
      .toSorted((a, b) => this.#heldBy(a.owner) - this.#heldBy(b.owner));
    if (next === undefined) return;
    this.#waiting.splice(this.#waiting.indexOf(next), 1);
    this.#take(next.owner);
    next.start();
  }
}
