import { AppError } from '@coppice/contract';

/** Counts requests in progress: all of them, for shutdown, and the expensive ones of each organization, to limit them. */
export class OpenRequests {
  readonly #perOrganization = new Map<string, number>();
  readonly #limit: number;
  readonly #waiting = new Set<() => void>();
  #all = 0;
  readonly #draining = new AbortController();

  constructor(limitPerOrganization: number) {
    this.#limit = limitPerOrganization;
  }

  get isDraining(): boolean {
    return this.#draining.signal.aborted;
  }

  /** Aborted when the service begins to shut down: what would go on without end must end by itself. */
  get draining(): AbortSignal {
    return this.#draining.signal;
  }

  /** Every request passes here, once when it comes and once when its answer is out. */
  enter(): void {
    this.#all += 1;
  }

  leave(): void {
    this.#all -= 1;
    if (this.#all === 0) for (const wake of this.#waiting) wake();
  }

  /** Runs `task` as one of the limited requests of an organization; `rate_limited` when there are too many. */
  async limit<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    const open = this.#perOrganization.get(organizationId) ?? 0;
    if (open >= this.#limit) {
      throw new AppError(
        'rate_limited',
        `${open} requests are open already, the limit is ${this.#limit}; try again later`,
      );
    }
    this.#perOrganization.set(organizationId, open + 1);
    try {
      return await task();
    } finally {
      this.#release(organizationId);
    }
  }

  /** From now on new requests are refused; resolves when none is open, or at the deadline. True when none is. */
  async drain(deadlineMs: number): Promise<boolean> {
    this.#draining.abort();
    if (this.#all === 0) return true;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, deadlineMs);
    this.#waiting.add(resolve);
    await promise;
    clearTimeout(timer);
    return this.#all === 0;
  }

  #release(organizationId: string): void {
    const open = this.#perOrganization.get(organizationId) ?? 1;
    if (open <= 1) this.#perOrganization.delete(organizationId);
    else this.#perOrganization.set(organizationId, open - 1);
  }
}
