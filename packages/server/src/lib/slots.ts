import { AppError } from '@coppice/contract';

/** Lets a bounded number work and a bounded number wait; who comes after that is refused with `capacity`. */
export class Slots {
  readonly #maxRunning: number;
  readonly #maxWaiting: number;
  readonly #waiting: (() => void)[] = [];
  readonly #what: string;
  #free: number;

  constructor(what: string, options: { maxRunning: number; maxWaiting: number }) {
    this.#what = what;
    this.#maxRunning = options.maxRunning;
    this.#free = options.maxRunning;
    this.#maxWaiting = options.maxWaiting;
  }

  get running(): number {
    return this.#maxRunning - this.#free;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Whether the next one would be refused. */
  get isFull(): boolean {
    return this.#free === 0 && this.waiting >= this.#maxWaiting;
  }

  /** Runs `work` when it is its turn. A signal ends the waiting, not the work. */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const release = await this.acquire(signal);
    try {
      return await work();
    } finally {
      release();
    }
  }

  /** Waits for a slot; what it answers gives the slot back, and is called once. */
  async acquire(signal: AbortSignal): Promise<() => void> {
    await this.#wait(signal);
    return () => this.#release();
  }

  #wait(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free--;
      return Promise.resolve();
    }
    if (this.isFull) {
      throw new AppError('capacity', `too many ${this.#what} are waiting; try again later`);
    }
    return new Promise((resolve, reject) => {
      const start = () => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(start), 1);
        reject(signal.reason as Error);
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#waiting.push(start);
    });
  }

  /** A slot that becomes free goes straight to the first that waits. */
  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next();
  }
}
