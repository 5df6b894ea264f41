/**
 * Starting a VM keeps a core busy for a while: more starts at once than cores make all of them slow and none ready.
 * So they take turns, in order; who would wait too long, or behind too many, is refused instead.
 */
import { AppError } from '@coppice/contract';
import { Slots } from '../../lib/slots.ts';

export interface TurnsOptions {
  maxRunning: number;
  maxWaiting: number;
  /** Of the wait, not of the work. */
  maxWaitMs: number;
}

export class Turns {
  readonly #options: TurnsOptions;
  readonly #slots: Slots;
  #running = 0;
  #waiting = 0;

  constructor(options: TurnsOptions) {
    this.#options = options;
    this.#slots = new Slots('sandbox starts', options);
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Whether the next one would be refused. */
  get isFull(): boolean {
    const { maxRunning, maxWaiting } = this.#options;
    return this.#running >= maxRunning && this.#waiting >= maxWaiting;
  }

  /** Does the work when it is its turn. Throws `capacity`, or the reason of `signal`, while it still waits. */
  async run<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(this.#waitedTooLong()), this.#options.maxWaitMs);
    const signals = signal === undefined ? [deadline.signal] : [deadline.signal, signal];
    let isWaiting = true;
    const leave = (): void => {
      if (isWaiting) this.#waiting -= 1;
      isWaiting = false;
      clearTimeout(timer);
    };
    this.#waiting += 1;
    try {
      return await this.#slots.run(AbortSignal.any(signals), async () => {
        leave();
        return this.#count(work);
      });
    } finally {
      leave();
    }
  }

  async #count<T>(work: () => Promise<T>): Promise<T> {
    this.#running += 1;
    try {
      return await work();
    } finally {
      this.#running -= 1;
    }
  }

  #waitedTooLong(): AppError {
    const seconds = Math.round(this.#options.maxWaitMs / 1000);
    return new AppError(
      'capacity',
      `this machine is busy starting other sandboxes: no turn came within ${seconds} s; try again later`,
    );
  }
}
