import { AppError } from '@coppice/contract';
import type { LimitsOf } from '../../limits/organization-limits.ts';
import type { Share } from '../../limits/share.ts';

/** Of all controls. Each of them reads every event of its organization from SQL. */
const MAX_EVENT_STREAMS = 100;
/**
 * Open transfers by links of an organization at one control. They also count as its requests, which the holder of one link must not
 * use up.
 */
const MAX_LINKED = 8;

/**
 * Open calls of MCP tools of an organization at one control. Each keeps its message and copies of it, up to 5 MiB, while its command runs or
 * its file is sent. The requests that a tool makes count as well.
 */
const MAX_TOOL_CALLS = 128;

/** Counts open requests: all of them, for the shutdown, and the expensive ones of each organization, to limit them. */
export class OpenRequests {
  readonly #requests: Counter;
  readonly #streams: Counter;
  readonly #eventStreams: Counter;
  readonly #linked = new Counter('transfers by links', () => MAX_LINKED);
  readonly #toolCalls = new Counter('calls of MCP tools', () => MAX_TOOL_CALLS);
  readonly #waiting = new Set<() => void>();
  #all = 0;
  readonly #draining = new AbortController();

  constructor(limitsOf: LimitsOf, share: Share) {
    this.#eventStreams = new Counter('streams of events', () => share(MAX_EVENT_STREAMS));
    this.#requests = new Counter('requests', (id) => limitsOf(id).openRequests);
    this.#streams = new Counter('streams', (id) => limitsOf(id).openStreams);
  }

  get isDraining(): boolean {
    return this.#draining.signal.aborted;
  }

  /** Aborts when the service begins to shut down: endless requests must then end by themselves. */
  get draining(): AbortSignal {
    return this.#draining.signal;
  }

  /** Open requests: all, and those that {@link limit} and {@link stream} count. */
  get counts(): { all: number; limited: number; streams: number } {
    return { all: this.#all, limited: this.#requests.total, streams: this.#streams.total };
  }

  /** Counts a request when it arrives; {@link leave} counts it out when its answer is sent. */
  enter(): void {
    this.#all += 1;
  }

  leave(): void {
    this.#all -= 1;
    if (this.#all === 0) for (const wake of this.#waiting) wake();
  }

  /** Runs `task` as one of the limited requests of an organization. Throws `rate_limited` when too many are open. */
  limit<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    return this.#requests.run(organizationId, task);
  }

  /** Like {@link limit}, for streams that cost little while idle: sessions, streamed commands, proxied requests. */
  stream<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    return this.#streams.run(organizationId, task);
  }

  /** Like {@link stream}, for streams of events. */
  eventStream<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    return this.#eventStreams.run(organizationId, () => this.stream(organizationId, task));
  }

  /** Runs a transfer by a link, which takes part in {@link limit}. Throws `rate_limited` when too many are open. */
  transferByLink<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    return this.#linked.run(organizationId, task);
  }

  /** Runs a call of a tool. Throws `rate_limited` when too many are open. */
  callTool<T>(organizationId: string, task: () => Promise<T>): Promise<T> {
    return this.#toolCalls.run(organizationId, task);
  }

  /** Begins the shutdown; waits until no request is open, or for `deadlineMs`. Returns whether none is open. */
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

/** Counts the open requests of one kind for each organization. */
class Counter {
  readonly #open = new Map<string, number>();
  readonly #what: string;
  readonly #limitOf: (organizationId: string) => number;

  constructor(what: string, limitOf: (organizationId: string) => number) {
    this.#what = what;
    this.#limitOf = limitOf;
  }

  /** Open requests of all organizations. */
  get total(): number {
    return [...this.#open.values()].reduce((sum, open) => sum + open, 0);
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
