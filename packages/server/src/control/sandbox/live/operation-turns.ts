/**
 * Queue of the operations of a sandbox: one at a time, in the order of the requests. The contract's table says which
 * requests are refused during an operation, and which run in parallel with it.
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

  /** Grows with every start and every end of an operation. After a change, earlier observations may no longer hold. */
  get count(): number {
    return this.#count;
  }

  admits(request: SandboxRequest): boolean {
    return findAdmission(this.#current, request) !== 'refuse';
  }

  /** Resolves when the operation under way is over; at once if there is none. Never rejects. */
  get ended(): Promise<void> {
    return this.#ended;
  }

  /**
   * Runs `turn` in its queue slot. Rejects with `rate_limited` if it is a caller's and too many tasks wait; the
   * service's own tasks may always wait.
   */
  run<T>(turn: () => Promise<T>, isCallers: boolean): Promise<T> {
    return isCallers ? this.#queue.runBounded(turn) : this.#queue.run(turn);
  }

  /** Shows `operation` as the one under way while `work` runs. Call only in a queue slot. */
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
