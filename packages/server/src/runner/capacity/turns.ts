/**
 * Starting a VM keeps a core busy for a while: more starts at once than cores make all of them slow and none ready.
 * So they take turns, in order; who would wait too long, or behind too many, is refused instead.
 */
import { AppError } from '@coppice/contract';
import { Slots } from '../../lib/waiting/slots.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

export interface TurnsOptions {
  maxRunning: number;
  maxWaiting: number;
  /** Of the wait, not of the work. */
  maxWaitMs: number;
}

export class Turns {
  readonly #maxWaitMs: number;
  readonly #slots: Slots;

  constructor({ maxWaitMs, ...options }: TurnsOptions) {
    this.#maxWaitMs = stretched(maxWaitMs);
    this.#slots = new Slots('sandbox starts', options);
  }

  get running(): number {
    return this.#slots.running;
  }

  get waiting(): number {
    return this.#slots.waiting;
  }

  /** Whether the next one would be refused. */
  get isFull(): boolean {
    return this.#slots.isFull;
  }

  /** Does the work when it is its turn. Throws `capacity`, or the reason of `signal`, while it still waits. */
  async run<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(this.#waitedTooLong()), this.#maxWaitMs);
    const signals = signal === undefined ? [deadline.signal] : [deadline.signal, signal];
    try {
      return await this.#slots.run(AbortSignal.any(signals), () => {
        clearTimeout(timer);
        return work();
      });
    } finally {
      clearTimeout(timer);
    }
  }

  #waitedTooLong(): AppError {
    const seconds = Math.round(this.#maxWaitMs / 1000);
    return new AppError(
      'capacity',
      `this machine is busy starting other sandboxes: no turn came within ${seconds} s; try again later`,
    );
  }
}
