/**
 * Ends builds that a killed control has left, and cleans up after builds, until nothing is left of them but their images:
 *
 *   running, at a control that is gone ─► failed
 *   ended, not cleaned    ─► its sandbox is destroyed ─► images that it made and nothing stands for are given up ─► cleaned
 *   images noted          ─► given up: see ../images/built-images.ts
 *
 * Each failure, for example of a runner that is down, leads to another attempt. Builds of other controls that are alive are left to
 * them: see build-store.ts.
 */
import { AppError, SERVICE_ACTOR } from '@coppice/contract';
import type { Logger } from 'pino';
import { stretched, withDeadline } from '../../lib/waiting/deadline.ts';
import { WakeSignal } from '../../lib/waiting/wake-signal.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { BuiltImages } from '../images/built-images.ts';
import type { Clock } from '../time/clock.ts';
import type { Ownership } from '../ownership/ownership.ts';
import type { BuildSandboxes } from './build-sandboxes.ts';
import type { BuildStore } from './build-store.ts';

const REST_MS = 30_000;
/** After a failure. */
const RETRY_MS = 5_000;
const CLEAN_DEADLINE_MS = 20_000;
const CLOSE_DEADLINE_MS = 5_000;

export interface BuildKeeperParts {
  ownership: Ownership;
  store: BuildStore;
  images: BuiltImages;
  sandboxes: BuildSandboxes;
  clock: Pick<Clock, 'wallMs'>;
  log: Logger;
}

export class BuildKeeper implements AsyncDisposable {
  readonly #parts: BuildKeeperParts;
  readonly #stop = new AbortController();
  readonly #work = new WakeSignal();
  /** Builds that run here. */
  readonly #busy = new Set<string>();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: BuildKeeperParts) {
    this.#parts = parts;
  }

  /** Resolves when no build is left as running. The rest continues in the background. */
  async start(): Promise<void> {
    await this.#endInterrupted();
    this.#loop = this.#run();
  }

  /** Leaves a build alone until the result is disposed. */
  hold(id: string): Disposable {
    this.#busy.add(id);
    return {
      [Symbol.dispose]: () => {
        this.#busy.delete(id);
        this.#work.wake();
      },
    };
  }

  /** Cleans up after a build that has ended. Never throws: after a failure it is tried again later. */
  async clean(build: ImageBuildTable): Promise<void> {
    try {
      await this.#clean(build);
    } catch (error) {
      this.#parts.log.warn(
        { err: error, build: build.id },
        'something is left of a build; it is removed later',
      );
    }
  }

  /** Lets the runner evict images that no build and no name accounts for. */
  async purge(): Promise<void> {
    const open = await this.#parts.store.listOpen();
    await this.#parts.images.exposeUnknown((id) => this.#busy.has(id) || open.has(id));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await withDeadline('the end of cleaning up', CLOSE_DEADLINE_MS, this.#loop).catch((error: unknown) =>
      this.#parts.log.warn({ err: error }, 'the next start cleans up after builds'),
    );
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      this.#work.reset();
      const isDone = await this.#keep();
      await this.#work.pause(isDone ? REST_MS : RETRY_MS, signal);
    }
  }

  /** Returns false if something must be tried again soon. */
  async #keep(): Promise<boolean> {
    const { ownership, store, images, log } = this.#parts;
    try {
      const hasEnded = await this.#endInterrupted();
      const left = (await store.listUnclean(ownership)).filter(({ id }) => !this.#busy.has(id));
      const results = await Promise.allSettled(left.map((build) => this.#clean(build)));
      await images.settleNoted(this.#stop.signal);
      const failed = results.find((result) => result.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
      return hasEnded && !(await store.hasUnclean(ownership.id));
    } catch (error) {
      if (!this.#stop.signal.aborted)
        log.warn({ err: error }, 'cleaning up after builds failed; it is tried again');
      return false;
    }
  }

  /** Returns false if one could not be ended. That must keep neither the service from its start nor the others from their end. */
  async #endInterrupted(): Promise<boolean> {
    const { ownership, store, clock, log } = this.#parts;
    const { code, message } = INTERRUPTED;
    const end = { state: 'failed', error_code: code, error_message: message } as const;
    let isDone = true;
    for (const build of await store.listRunning(ownership.id)) {
      if (this.#busy.has(build.id)) continue;
      try {
        await store.end(build, { end, by: SERVICE_ACTOR, atMs: clock.wallMs() });
        log.warn({ build: build.id }, 'a build was interrupted by a restart');
      } catch (error) {
        isDone = false;
        log.error({ err: error, build: build.id }, 'an interrupted build could not be ended');
      }
    }
    return isDone;
  }

  async #clean(build: ImageBuildTable): Promise<void> {
    const { store, images, sandboxes } = this.#parts;
    const deadline = AbortSignal.timeout(stretched(CLEAN_DEADLINE_MS));
    await sandboxes.destroy(build, AbortSignal.any([deadline, this.#stop.signal]));
    await images.settleBuild(build.organization_id, build.id);
    await store.setCleaned(build.id);
  }
}

const INTERRUPTED = new AppError(
  'unavailable',
  'the service was restarted in the middle of the build; build again',
);
