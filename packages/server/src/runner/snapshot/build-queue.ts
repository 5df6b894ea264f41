/**
 * The templates that are to be built. One is built at a time; those that wait are in a line for each organization, and the
 * line that was served longest ago is next: an organization that asks for many delays the first one of another by a single
 * build.
 *
 *   asked for ─► waits in the line of every organization that asks ─► built ─► all who asked are answered
 *                  └─ the last of them leaves: dropped                 └─ the last of them leaves: ended
 */
import { AppError } from '@coppice/contract';
import { untilAborted } from '../../lib/waiting/deadline.ts';

/** Of one organization; each is a create, or a build of an image, that is under way. */
const MAX_WAITING = 16;

export interface BuildOrder {
  /** Of the template. */
  key: string;
  /** Who asks; not looked into. */
  organization: string;
  /** Aborted when whoever asked has left. */
  signal?: AbortSignal | undefined;
  /** Its signal is aborted when nobody waits any more. */
  build: (signal: AbortSignal) => Promise<void>;
}

interface Line {
  builds: Build[];
  /** Grows with each build that was taken from any line. One that enters is behind all that have waited for longer. */
  servedAt: number;
}

interface Build {
  order: BuildOrder;
  /** How many wait for it, by organization. */
  waiting: Map<string, number>;
  done: PromiseWithResolvers<void>;
  ending: AbortController;
}

export class BuildQueue {
  /** That can still be joined: waiting, or running with somebody who waits for it. */
  readonly #builds = new Map<string, Build>();
  /** Of organizations with something that waits, and of the one whose build runs. */
  readonly #lines = new Map<string, Line>();
  #running: Build | undefined;
  #served = 0;

  /** Settles as the build does. Throws `capacity`, or the reason of `signal`. */
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
    build.ending.abort(new AppError('unavailable', 'nobody waits for this template any more'));
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

  /** Does not throw: how it went is told to those who wait. */
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
  // Whoever waited may have left.
  done.promise.catch(() => undefined);
  return { order, waiting: new Map(), done, ending: new AbortController() };
}
