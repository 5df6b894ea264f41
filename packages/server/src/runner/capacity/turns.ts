/**
 * Limits concurrent VM starts. A start keeps a core busy for a while: more concurrent starts than cores make all of
 * them slow. Starts wait in order. A start that would wait too long, or behind too many others, is refused.
 */
import { AppError } from '@coppice/contract';
import { Slots } from '../../lib/waiting/slots.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

export interface TurnsOptions {
  maxRunning: number;
  maxWaiting: number;
  /** Longest wait for a start slot, without the work itself. */
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

  /** Whether the next start would be refused. */
  get isFull(): boolean {
    return this.#slots.isFull;
  }

  /** Runs `work` when a start slot is free. While it waits, throws `capacity` or the reason of `signal`. */
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
      `this machine is busy starting other sandboxes: no start slot was free within ${seconds} s; try again later`,
    );
  }
}
