/**
 * Who may do what takes its time to a sandbox: one operation at a time, in the order that they were asked for. The table
 * of the contract says what is refused meanwhile, and what goes on beside it.
 */
import { findAdmission, type SandboxOperation, type SandboxRequest } from '@coppice/contract';
import { SerialQueue } from '../../../lib/waiting/serial-queue.ts';

export class OperationTurns {
  readonly #queue = new SerialQueue();
  #current: SandboxOperation | null = null;
  #ended = Promise.resolve();
  #count = 0;

  get current(): SandboxOperation | null {
    return this.#current;
  }

  /** Grows with every beginning and every end: what was found out in between may no longer hold. */
  get count(): number {
    return this.#count;
  }

  admits(request: SandboxRequest): boolean {
    return findAdmission(this.#current, request) !== 'refuse';
  }

  /** Settles, never rejects, when the operation under way is over; at once when there is none. */
  get ended(): Promise<void> {
    return this.#ended;
  }

  /** Waits for its turn: a bounded number of callers may, the service itself always. */
  run<T>(turn: () => Promise<T>, isCallers: boolean): Promise<T> {
    return isCallers ? this.#queue.runBounded(turn) : this.#queue.run(turn);
  }

  /** Only in a turn. */
  async hold<T>(operation: SandboxOperation, work: () => Promise<T>): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#ended = promise;
    this.#current = operation;
    this.#count += 1;
    try {
      return await work();
    } finally {
      this.#current = null;
      this.#count += 1;
      resolve();
    }
  }
}
