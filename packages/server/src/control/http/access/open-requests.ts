import { AppError } from '@coppice/contract';
import type { LimitsOf } from '../../limits/organization-limits.ts';

/** Counts requests in progress: all of them, for shutdown, and the expensive ones of each organization, to limit them. */
export class OpenRequests {
  readonly #requests: Counter;
  readonly #streams: Counter;
  readonly #waiting = new Set<() => void>();
  #all = 0;
  readonly #draining = new AbortController();

  constructor(limitsOf: LimitsOf) {
    this.#requests = new Counter('requests', (id) => limitsOf(id).openRequests);
    this.#streams = new Counter('streams', (id) => limitsOf(id).openStreams);
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
  limit<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    return this.#requests.run(organizationId, task);
  }

  /** The same for what flows and costs little while it is quiet: sessions, streamed commands, proxied requests. */
  stream<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    return this.#streams.run(organizationId, task);
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
}

/** How many of a kind each organization has open. */
class Counter {
  readonly #open = new Map<string, number>();
  readonly #what: string;
  readonly #limitOf: (organizationId: string) => number;

  constructor(what: string, limitOf: (organizationId: string) => number) {
    this.#what = what;
    this.#limitOf = limitOf;
  }

  async run<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    const open = this.#open.get(organizationId) ?? 0;
    const limit = this.#limitOf(organizationId);
    if (open >= limit) {
      throw new AppError(
        'rate_limited',
        `${open} ${this.#what} are open already, the limit is ${limit}; try again later`,
      );
    }
    this.#open.set(organizationId, open + 1);
    try {
      return await task();
    } finally {
      this.#release(organizationId);
    }
  }

  #release(organizationId: string): void {
    const open = this.#open.get(organizationId) ?? 1;
    if (open <= 1) this.#open.delete(organizationId);
    else this.#open.set(organizationId, open - 1);
  }
}
