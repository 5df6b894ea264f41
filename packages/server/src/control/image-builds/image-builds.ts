/**
 * Builds images from steps. A build has one sandbox of its organization, which counts and is billed, limited and audited as
 * any other:
 *
 *   row ─► create the sandbox from the image ─► steps, one after another ─► the runner makes an image of its files
 *       ─► destroy the sandbox ─► name and end of the build, in one transaction
 *
 * The row names the sandbox before it exists, and the runner knows the build of each image. So the keeper finds what a build
 * has left, whatever ended it.
 */
import { EventEmitter, once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import {
  AppError,
  MAX_BUILD_EVENTS,
  MAX_BUILD_STEPS,
  type AuditActor,
  type BuildImageRequest,
  type ImageBuild,
  type ImageBuildEvent,
} from '@coppice/contract';
import type { Logger } from 'pino';
import { newId } from '../../lib/new-id.ts';
import { stretched, withDeadline } from '../../lib/waiting/deadline.ts';
import { withRetries } from '../../lib/waiting/retries.ts';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import { parseBuiltName, type BuiltImages } from '../images/built-images.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { Ownership } from '../ownership/ownership.ts';
import { isUnanswered } from '../placement/runner-error.ts';
import type { Subject } from '../sandbox/idempotency.ts';
import { newSandboxId } from '../sandbox/record/ids.ts';
import type { RequestedEgress } from '../sandbox/sandboxes.ts';
import type { Clock } from '../time/clock.ts';
import type { BuildContexts } from './build-contexts.ts';
import type { BuildKeeper } from './build-keeper.ts';
import { BuildLog } from './build-log.ts';
import type { BuildSandboxes } from './build-sandboxes.ts';
import { buildBuildRecord, type BuildEnd, type BuildStore, type Ending } from './build-store.ts';
import { parseDockerfile } from './dockerfile.ts';
import { roomOf, runBuild, type BuildParts, type Plan, type RunningWork, type Work } from './run-build.ts';

/** Builds of one organization that run at the same time. */
const MAX_RUNNING = 8;
/** A follower looks again after this time, also without a notice. */
const FOLLOW_MS = 5000;
/** The same for a build of another control, which sends no notices. */
const FOLLOW_ELSEWHERE_MS = 500;
/** How often builds that run here are looked for that a caller has cancelled at another control. */
const CANCELS_MS = 1000;
/** How long the end of a build waits for its sandbox to be destroyed. The keeper continues. */
const DESTROY_DEADLINE_MS = 20_000;
/** How long a caller waits until a cancelled build of another control has ended. */
const CANCEL_DEADLINE_MS = 30_000;
/** Pauses between the attempts to record the end of a build, while the database or the runner does not answer. */
const END_RETRY_DELAYS_MS = [500, 2000, 8000, 20_000, 30_000];
/** How long a shutdown waits for builds to end. The next start ends the others. */
const CLOSE_DEADLINE_MS = 15_000;

export interface ImageBuildsParts extends BuildParts {
  ownership: Ownership;
  store: BuildStore;
  images: BuiltImages;
  contexts: BuildContexts;
  sandboxes: BuildSandboxes;
  keeper: BuildKeeper;
  clock: Pick<Clock, 'wallMs'>;
  log: Logger;
}

export interface StartBuild {
  owner: Owner;
  reach: Reach;
  by: AuditActor;
  /** From {@link newBuildId}. */
  id: string;
  request: BuildImageRequest;
  egress: RequestedEgress;
}

export function newBuildId(): string {
  return newId('build');
}

const BUILD_ID = /^build[0-9a-f]{20}$/u;

interface Running {
  organizationId: string;
  stop: AbortController;
  /** Resolves when the build has ended. */
  done: PromiseWithResolvers<void>;
}

interface CarriedOut extends Work {
  by: AuditActor;
  /** Fires when the build is cancelled or the service stops. */
  signal: AbortSignal;
}

export class ImageBuilds implements AsyncDisposable {
  readonly #parts: ImageBuildsParts;
  readonly #running = new Map<string, Running>();
  readonly #notices = new EventEmitter().setMaxListeners(0);
  readonly #cancels: NodeJS.Timeout;
  #isClosing = false;

  constructor(parts: ImageBuildsParts) {
    this.#parts = parts;
    this.#cancels = setInterval(() => void this.#findCancelled(), CANCELS_MS);
  }

  /** Resolves when the build is recorded and runs. Throws when it cannot begin. */
  async start(start: StartBuild): Promise<ImageBuild> {
    this.#parts.runners.any();
    const plan = planBuild(start.request);
    const { name } = parseBuiltName(start.request.name ?? '');
    const entry = this.#enter(start);
    try {
      return await this.#begin(start, { plan, name, entry });
    } catch (error) {
      this.#leave(start.id);
      throw error;
    }
  }

  async get(reach: Reach, id: string): Promise<ImageBuild> {
    return buildBuildRecord(await this.#require(reach, id));
  }

  async list(reach: Reach): Promise<ImageBuild[]> {
    return (await this.#parts.store.list(reach)).map(buildBuildRecord);
  }

  /** Returns the outcome of a start, for its Idempotency-Key. */
  async findSubject(reach: Reach, id: string): Promise<Subject<ImageBuild>> {
    const row = await this.#parts.store.find(reach, id);
    return row === undefined ? 'nothing' : { status: 201, body: buildBuildRecord(row) };
  }

  /** Cancels a build, and resolves when it has ended. A build that has ended stays as it is. */
  async cancel(reach: Reach, id: string): Promise<ImageBuild> {
    await this.#require(reach, id);
    const running = this.#running.get(id);
    if (running === undefined) return this.#cancelElsewhere(reach, id);
    running.stop.abort(new Cancelled());
    await running.done.promise;
    return this.get(reach, id);
  }

  /** The control that runs the build looks for this. If it is gone, the keeper ends the build. */
  async #cancelElsewhere(reach: Reach, id: string): Promise<ImageBuild> {
    await this.#parts.store.cancel(id);
    const deadline = performance.now() + CANCEL_DEADLINE_MS;
    for (;;) {
      const build = await this.get(reach, id);
      if (build.status !== 'running') return build;
      if (performance.now() > deadline)
        throw new AppError(
          'unavailable',
          'the build is cancelled and has not ended yet; look at it again later',
        );
      await delay(FOLLOW_ELSEWHERE_MS);
    }
  }

  /** Stops builds that were cancelled at other controls. */
  async #findCancelled(): Promise<void> {
    const ids = [...this.#running.keys()];
    if (ids.length === 0) return;
    const { store, log } = this.#parts;
    try {
      for (const id of await store.listCancelled(ids)) this.#running.get(id)?.stop.abort(new Cancelled());
    } catch (error) {
      log.debug({ err: error }, 'control looks later for builds that were cancelled');
    }
  }

  /** Resolves with the record when the build has ended, or when `signal` fires. */
  async wait(reach: Reach, id: string, signal: AbortSignal): Promise<ImageBuild> {
    for await (const event of this.follow(reach, id, { after: 0, signal })) if (event.type === 'end') break;
    return this.get(reach, id);
  }

  /** Returns a page of the log. */
  async readLog(reach: Reach, id: string, after: number): Promise<ImageBuildEvent[]> {
    await this.#require(reach, id);
    return this.#parts.store.readEvents(id, after);
  }

  /** Yields the events after a number, to the end of the build or until `signal`. */
  async *follow(
    reach: Reach,
    id: string,
    { after, signal }: { after: number; signal: AbortSignal },
  ): AsyncGenerator<ImageBuildEvent> {
    let last = after;
    while (!signal.aborted) {
      const notice = this.#notice(id, signal);
      // Read before the events: a build that has ended writes no more of them.
      const hasEnded = !this.#running.has(id) && (await this.#require(reach, id)).state !== 'running';
      const events = await this.readLog(reach, id, last);
      for (const event of events) {
        yield event;
        last = event.seq;
        if (event.type === 'end') return;
      }
      if (events.length === 0 && hasEnded) return;
      if (events.length < MAX_BUILD_EVENTS) await notice;
    }
  }

  /** Stops all builds, which fail, and resolves when their sandboxes are destroyed, or after a while. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosing = true;
    clearInterval(this.#cancels);
    const running = [...this.#running.values()];
    for (const { stop } of running) stop.abort(STOPPED);
    const ended = Promise.all(running.map(({ done }) => done.promise));
    await withDeadline('the end of the builds', CLOSE_DEADLINE_MS, ended).catch((error: unknown) =>
      this.#parts.log.warn({ err: error }, 'builds are ended at the next start'),
    );
  }

  /** Counts the build before anything is waited for, so that the limit holds for requests at the same time. */
  #enter({ id, owner: { organizationId } }: StartBuild): Running {
    if (this.#isClosing) throw STOPPED;
    const running = [...this.#running.values()].filter((build) => build.organizationId === organizationId);
    if (running.length >= MAX_RUNNING) throw tooMany();
    const entry = { organizationId, stop: new AbortController(), done: Promise.withResolvers<void>() };
    this.#running.set(id, entry);
    return entry;
  }

  #leave(id: string): void {
    this.#running.get(id)?.done.resolve();
    this.#running.delete(id);
  }

  async #begin(
    { owner, reach, by, id, request, egress }: StartBuild,
    { plan, name, entry }: { plan: Plan; name: string; entry: Running },
  ): Promise<ImageBuild> {
    const { images, contexts, keeper, log } = this.#parts;
    const { organizationId } = owner;
    const { context: contextId } = request;
    const context = contextId === undefined ? undefined : contexts.take(organizationId, contextId);
    using refused = new DisposableStack();
    refused.defer(() => context?.giveBack());
    // Refuses, or passes the request on, before anything is begun.
    await images.listHolders(await images.pin(organizationId, plan.from));
    await images.checkName({ reach, by }, name);
    await roomOf(images, organizationId);
    entry.stop.signal.throwIfAborted();
    const hold = keeper.hold(id);
    const build = await this.#insert({ owner, reach, id }, plan, name).catch((error: unknown) => {
      hold[Symbol.dispose]();
      throw error;
    });
    refused.move();
    const { signal } = entry.stop;
    void this.#carryOut(build, { request, plan, context, egress, by, signal })
      .catch((error: unknown) =>
        log.error({ err: error, build: id }, 'a build was not ended, or left something'),
      )
      .finally(() => {
        this.#leave(id);
        hold[Symbol.dispose]();
        void context?.[Symbol.asyncDispose]();
      });
    return buildBuildRecord(build);
  }

  async #insert(
    { owner, reach, id }: Pick<StartBuild, 'owner' | 'reach' | 'id'>,
    plan: Plan,
    name: string,
  ): Promise<ImageBuildTable> {
    const { store, ownership, clock } = this.#parts;
    const row = {
      id,
      organization_id: owner.organizationId,
      team_id: owner.teamId,
      team_only: reach.onlyTeamId !== null,
      name,
      base: plan.from,
      sandbox_id: newSandboxId(),
      steps: plan.steps.length,
      created_at: clock.wallMs(),
      control_id: ownership.id,
    };
    const build = await store.insert(row, MAX_RUNNING);
    if (build === undefined) throw tooMany();
    return build;
  }

  async #notice(id: string, signal: AbortSignal): Promise<void> {
    const waitMs = this.#running.has(id) ? FOLLOW_MS : FOLLOW_ELSEWHERE_MS;
    const until = AbortSignal.any([signal, AbortSignal.timeout(waitMs)]);
    await once(this.#notices, id, { signal: until }).catch((error: unknown) => {
      if (!until.aborted) throw error;
    });
  }

  async #carryOut(build: ImageBuildTable, how: CarriedOut): Promise<void> {
    const { store, cache, keeper, images } = this.#parts;
    const digests = await this.#runToEnd(build, how);
    this.#notices.emit(build.id);
    // Who waits for the build need not wait for what follows.
    this.#leave(build.id);
    await images.settle(digests);
    await keeper.clean(build);
    await cache.trim(build.organization_id);
    await store.trim(build.organization_id);
  }

  /** Resolves when the end is recorded, with the digests of images whose names or steps may have changed. */
  async #runToEnd(build: ImageBuildTable, how: CarriedOut): Promise<string[]> {
    const { store, images, sandboxes, log } = this.#parts;
    const onEvents = (): void => void this.#notices.emit(build.id);
    const buildLog = new BuildLog({ buildId: build.id, store, onEvents, log });
    using held = new DisposableStack();
    const digests: string[] = [];
    const hold = (digest: string): void => {
      held.use(images.hold(digest));
      digests.push(digest);
    };
    const { end, key } = await this.#run(build, { ...how, hold }, buildLog);
    const destroyed = sandboxes.destroy(build, AbortSignal.timeout(stretched(DESTROY_DEADLINE_MS)));
    // The keeper tries again.
    await Promise.allSettled([buildLog.close(), destroyed]);
    const { replaced } = await this.#end(build, { end, key, by: how.by });
    if (end.state === 'done') digests.push(end.digest);
    return [...replaced, ...digests];
  }

  /** Never throws. */
  async #run(
    build: ImageBuildTable,
    how: CarriedOut & Pick<RunningWork, 'hold'>,
    log: BuildLog,
  ): Promise<{ end: BuildEnd; key?: string | undefined }> {
    const timeoutMs = how.request.timeout * 1000;
    const deadline = AbortSignal.timeout(timeoutMs);
    const signal = AbortSignal.any([how.signal, deadline]);
    try {
      const deadlineMs = performance.now() + timeoutMs;
      const built = await runBuild(this.#parts, build, { ...how, signal, log, deadlineMs });
      const { digest, size_bytes, key } = built;
      return { end: { state: 'done', digest, size_bytes }, key };
    } catch (error) {
      const timeoutS = deadline.aborted ? how.request.timeout : undefined;
      const end = describeFailure(how.signal.aborted ? how.signal.reason : error, { timeoutS });
      if (end.state === 'failed' && end.error_code === 'internal')
        this.#parts.log.error({ err: error, build: build.id }, 'a build failed');
      return { end };
    }
  }

  /** Records the end, also if the database or the runner is away for a moment. */
  async #end(build: ImageBuildTable, ending: Omit<Ending, 'atMs'>): Promise<{ replaced: string[] }> {
    const noteFailure = (error: unknown): void => {
      if (error instanceof AppError && !isUnanswered(error)) throw error;
      this.#parts.log.warn({ err: error, build: build.id }, 'the end of a build is not recorded yet');
    };
    try {
      return await withRetries(END_RETRY_DELAYS_MS, () => this.#store(build, ending), noteFailure);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return this.#fail(build, ending.by, error);
    }
  }

  #store(build: ImageBuildTable, ending: Omit<Ending, 'atMs'>): Promise<{ replaced: string[] }> {
    const { store, images, clock } = this.#parts;
    const { end } = ending;
    const atMs = clock.wallMs();
    if (end.state !== 'done') return store.end(build, { ...ending, atMs });
    return images.keepAndName(build.organization_id, end.digest, (runnerId) =>
      store.end(build, { ...ending, runnerId, atMs }),
    );
  }

  /** A build has failed after all if its image may not get its name, or was evicted before. */
  #fail(
    build: ImageBuildTable,
    by: AuditActor,
    { code, message }: AppError,
  ): Promise<{ replaced: string[] }> {
    const end = failed(code, message);
    return this.#parts.store.end(build, { end, by, atMs: this.#parts.clock.wallMs() });
  }

  async #require(reach: Reach, id: string): Promise<ImageBuildTable> {
    const row = BUILD_ID.test(id) ? await this.#parts.store.find(reach, id) : undefined;
    if (row !== undefined) return row;
    throw new AppError('not_found', `there is no build ${JSON.stringify(id.slice(0, 64))}`);
  }
}

/** Reads what a request asks to build. Throws `invalid_request`. */
function planBuild({ from, steps, dockerfile, build_args }: BuildImageRequest): Plan {
  if (dockerfile !== undefined) {
    const plan = parseDockerfile(dockerfile, build_args);
    if (plan.steps.length <= MAX_BUILD_STEPS) return plan;
    throw new AppError(
      'invalid_request',
      `dockerfile: it has ${plan.steps.length} steps, at most ${MAX_BUILD_STEPS} are allowed`,
    );
  }
  if (from === undefined || steps === undefined)
    throw new AppError('invalid_request', 'from and steps: are required for a build without a dockerfile');
  return { from, steps, notes: [], escape: undefined };
}

class Cancelled extends Error {}

const STOPPED = new AppError(
  'unavailable',
  'the service was stopped in the middle of the build; build again',
);

function describeFailure(error: unknown, { timeoutS }: { timeoutS: number | undefined }): BuildEnd {
  if (error instanceof Cancelled) return { state: 'cancelled' };
  if (timeoutS !== undefined)
    return failed('build_failed', `the build did not end within its timeout of ${timeoutS} s`);
  if (error instanceof AppError) return failed(error.code, error.message);
  return failed('internal', 'a fault of the service ended the build; build again');
}

function failed(code: AppError['code'], message: string): BuildEnd {
  return { state: 'failed', error_code: code, error_message: message };
}

function tooMany(): AppError {
  return new AppError('capacity', `your organization runs ${MAX_RUNNING} builds; wait for one to end`);
}
