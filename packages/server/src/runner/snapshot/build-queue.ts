/**
 * The queue of template builds. One template is built at a time. Each organization has its own line, and the line that
 * was served longest ago is next. So an organization that requests many templates delays another's first one by a
 * single build.
 *
 *   requested ─► waits in the line of every requesting organization ─► built ─► all callers are answered
 *                  └─ the last caller leaves: dropped                    └─ the last caller leaves: ended
 */
import { AppError } from '@coppice/contract';
import { untilAborted } from '../../lib/waiting/deadline.ts';

/** Queued builds of one organization. Each is a running create, or a running build of an image. */
const MAX_WAITING = 16;

export interface BuildOrder {
  /** Key of the template. */
  key: string;
  /** The requesting organization; an opaque string here. */
  organization: string;
  /** Aborted when the caller has left. */
  signal?: AbortSignal | undefined;
  /** Builds the template. Its signal is aborted when no caller waits any more. */
  build: (signal: AbortSignal) => Promise<void>;
}

interface Line {
  builds: Build[];
  /** Rank of the last build taken from this line, among all lines. A new line goes behind those that wait longer. */
  servedAt: number;
}

interface Build {
  order: BuildOrder;
  /** Number of waiting callers, by organization. */
  waiting: Map<string, number>;
  done: PromiseWithResolvers<void>;
  ending: AbortController;
}

export class BuildQueue {
  /** Builds that can still be joined: queued, or running with a waiting caller. */
  readonly #builds = new Map<string, Build>();
  /** Lines of organizations with queued builds, and of the one whose build runs. */
  readonly #lines = new Map<string, Line>();
  #running: Build | undefined;
  #served = 0;

  /** Settles with the build. Throws `capacity` if the organization's line is full, or the reason of `signal`. */
  async run(order: BuildOrder): Promise<void> {
    const { key, organization, signal } = order;
    signal?.throwIfAborted();
    const build = this.#builds.get(key) ?? newBuild(order);
    this.#enter(build, organization);
    this.#builds.set(key, build);
    this.#startNext();
    try {
      await untilAborted(signal, build.done.promise);
    } finally {
      this.#leave(build, organization);
    }
  }

  #enter(build: Build, organization: string): void {
    const others = build.waiting.get(organization) ?? 0;
    if (others === 0 && build !== this.#running) this.#line(build, organization);
    build.waiting.set(organization, others + 1);
  }

  #line(build: Build, organization: string): void {
    const line = this.#lines.get(organization) ?? { builds: [], servedAt: this.#served - 0.5 };
    if (line.builds.length >= MAX_WAITING)
      throw new AppError(
        'capacity',
        `${MAX_WAITING} new images or shapes of the organization wait for their first start; try again when one is ready`,
      );
    line.builds.push(build);
    this.#lines.set(organization, line);
  }

  #leave(build: Build, organization: string): void {
    const others = (build.waiting.get(organization) ?? 0) - 1;
    if (others > 0) {
      build.waiting.set(organization, others);
      return;
    }
    build.waiting.delete(organization);
    this.#unline(build, organization);
    if (build.waiting.size > 0) return;
    this.#forget(build);
    build.ending.abort(new AppError('unavailable', 'no caller waits for this template any more'));
  }

  #unline(build: Build, organization: string): void {
    const line = this.#lines.get(organization);
    if (line !== undefined) line.builds = line.builds.filter((each) => each !== build);
  }

  #forget(build: Build): void {
    if (this.#builds.get(build.order.key) === build) this.#builds.delete(build.order.key);
  }

  #startNext(): void {
    if (this.#running !== undefined) return;
    const next = this.#takeNext();
    if (next === undefined) return;
    this.#running = next;
    void this.#work(next);
  }

  /** Runs a build. Never rejects: the waiting callers get the result. */
  async #work(build: Build): Promise<void> {
    const { order, done, ending } = build;
    try {
      await order.build(ending.signal);
      done.resolve();
    } catch (error) {
      done.reject(error);
    }
    this.#running = undefined;
    this.#forget(build);
    this.#startNext();
  }

  #takeNext(): Build | undefined {
    for (const [organization, { builds }] of this.#lines)
      if (builds.length === 0) this.#lines.delete(organization);
    const [line] = [...this.#lines.values()].toSorted((a, b) => a.servedAt - b.servedAt);
    const build = line?.builds[0];
    if (line === undefined || build === undefined) return undefined;
    line.servedAt = this.#served += 1;
    for (const organization of build.waiting.keys()) this.#unline(build, organization);
    return build;
  }
}

function newBuild(order: BuildOrder): Build {
  const done = Promise.withResolvers<void>();
  // The callers may have left.
  done.promise.catch(() => undefined);
  return { order, waiting: new Map(), done, ending: new AbortController() };
}
