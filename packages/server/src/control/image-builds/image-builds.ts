/**
 * Builds images from steps. A build has one sandbox of its organization, which counts and is billed, limited and audited as
 * any other:
 *
 *   row ─► create the sandbox from the image ─► steps, one after another ─► the runner makes an image of its files
 *       ─► name and end of the build, in one transaction ─► destroy the sandbox
 *
 * The row names the sandbox before it exists. So a control that was killed finds at its next start which sandboxes to
 * destroy and which builds have failed. An image that no name stands for is removed by the same sweep.
 */
import { EventEmitter, once } from 'node:events';
import {
  AppError,
  MAX_BUILD_EVENTS,
  MAX_BUILD_STEPS,
  type BuildImageRequest,
  type ImageBuild,
  type ImageBuildEvent,
} from '@coppice/contract';
import type { Logger } from 'pino';
import { newId } from '../../lib/new-id.ts';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import { parseBuiltName, type BuiltImages } from '../images/built-images.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { Subject } from '../sandbox/idempotency.ts';
import { newSandboxId } from '../sandbox/record/ids.ts';
import type { RequestedEgress, Sandboxes } from '../sandbox/sandboxes.ts';
import type { Clock } from '../time/clock.ts';
import type { BuildContexts } from './build-contexts.ts';
import { BuildLog } from './build-log.ts';
import { buildBuildRecord, type BuildEnd, type BuildStore } from './build-store.ts';
import { parseDockerfile } from './dockerfile.ts';
import { roomOf, runBuild, type BuildParts, type Built, type Plan, type Work } from './run-build.ts';

/** Builds of one organization that run at the same time. */
const MAX_RUNNING = 8;
/** A follower looks again after this time, also without a notice. */
const FOLLOW_MS = 5000;
const DESTROY_PATIENCE_MS = 60_000;
/** At a start, which waits for it. */
const RECOVERY_PATIENCE_MS = 10_000;

export interface ImageBuildsParts extends BuildParts {
  store: BuildStore;
  images: BuiltImages;
  contexts: BuildContexts;
  sandboxes: Pick<Sandboxes, 'create' | 'getDriver'>;
  clock: Pick<Clock, 'wallMs'>;
  log: Logger;
}

export interface StartBuild {
  owner: Owner;
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
  done: Promise<void>;
}

export class ImageBuilds implements AsyncDisposable {
  readonly #parts: ImageBuildsParts;
  readonly #running = new Map<string, Running>();
  readonly #notices = new EventEmitter().setMaxListeners(0);
  #isClosing = false;

  constructor(parts: ImageBuildsParts) {
    this.#parts = parts;
  }

  /** Fails the builds that a killed control has left, destroys their sandboxes, and removes images without a name. */
  async recover(): Promise<void> {
    const { store, log } = this.#parts;
    const interrupted = async (build: ImageBuildTable): Promise<void> => {
      await this.#destroySandbox(build, RECOVERY_PATIENCE_MS);
      const error = new AppError(
        'unavailable',
        'the service was restarted in the middle of the build; build again',
      );
      await this.#end(build, { state: 'failed', error_code: error.code, error_message: error.message });
      log.warn({ build: build.id }, 'a build was interrupted by a restart');
    };
    await Promise.all((await store.listRunning()).map(interrupted));
    await this.#sweepImages();
  }

  /** Resolves when the build is recorded and runs. Throws when it cannot begin. */
  async start({ owner, id, request, egress }: StartBuild): Promise<ImageBuild> {
    const { store, images, clock } = this.#parts;
    const { organizationId, teamId } = owner;
    const plan = planBuild(request);
    if (this.#isClosing) throw new AppError('unavailable', 'the service is shutting down');
    const { name } = parseBuiltName(request.name ?? '');
    const { context: contextId } = request;
    const context =
      contextId === undefined ? undefined : this.#parts.contexts.take(organizationId, contextId);
    using refused = new DisposableStack();
    refused.defer(() => context?.giveBack());
    const running = [...this.#running.values()].filter((build) => build.organizationId === organizationId);
    if (running.length >= MAX_RUNNING)
      throw new AppError('capacity', `your organization runs ${MAX_RUNNING} builds; wait for one to end`);
    await images.pin(organizationId, plan.from);
    await roomOf(images, organizationId);
    const row = {
      id,
      organization_id: organizationId,
      team_id: teamId,
      name,
      base: plan.from,
      sandbox_id: newSandboxId(),
      steps: plan.steps.length,
      created_at: clock.wallMs(),
    };
    const stop = new AbortController();
    const entry: Running = { organizationId, stop, done: Promise.resolve() };
    this.#running.set(id, entry);
    try {
      await store.insert(row);
    } catch (error) {
      this.#running.delete(id);
      throw error;
    }
    const build = await this.#require({ organizationId, onlyTeamId: null }, id);
    refused.move();
    entry.done = this.#carryOut(build, { request, plan, context, egress, signal: stop.signal })
      .catch((error: unknown) =>
        this.#parts.log.error({ err: error, build: id }, 'a build could not be ended'),
      )
      .finally(() => {
        this.#running.delete(id);
        void context?.[Symbol.asyncDispose]();
      });
    return buildBuildRecord(build);
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
    running?.stop.abort(new Cancelled());
    await running?.done;
    return this.get(reach, id);
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
      const hasEnded = !this.#running.has(id);
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

  /** Stops all builds, which fail, and resolves when their sandboxes are destroyed. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosing = true;
    for (const { stop } of this.#running.values())
      stop.abort(
        new AppError('unavailable', 'the service was stopped in the middle of the build; build again'),
      );
    await Promise.all([...this.#running.values()].map(({ done }) => done));
  }

  async #notice(id: string, signal: AbortSignal): Promise<void> {
    const until = AbortSignal.any([signal, AbortSignal.timeout(FOLLOW_MS)]);
    await once(this.#notices, id, { signal: until }).catch((error: unknown) => {
      if (!until.aborted) throw error;
    });
  }

  async #carryOut(build: ImageBuildTable, how: Work & { signal: AbortSignal }): Promise<void> {
    const log = new BuildLog({
      buildId: build.id,
      store: this.#parts.store,
      onEvent: () => this.#notices.emit(build.id),
    });
    const timeoutMs = how.request.timeout * 1000;
    const deadline = AbortSignal.timeout(timeoutMs);
    const signal = AbortSignal.any([how.signal, deadline]);
    let end: BuildEnd;
    let built: Built | undefined;
    try {
      const deadlineMs = performance.now() + timeoutMs;
      built = await runBuild(this.#parts, build, { ...how, signal, log, deadlineMs });
      end = { state: 'done', digest: built.digest, size_bytes: built.size_bytes };
    } catch (error) {
      end = describeFailure(how.signal.aborted ? how.signal.reason : error, {
        timeoutS: deadline.aborted ? how.request.timeout : undefined,
      });
      if (end.error_code === 'internal')
        this.#parts.log.error({ err: error, build: build.id }, 'a build failed');
    }
    await log
      .close()
      .catch((error: unknown) =>
        this.#parts.log.warn({ err: error, build: build.id }, 'the log of a build is not whole'),
      );
    await this.#destroySandbox(build);
    await this.#end(build, end, built);
  }

  async #end(build: ImageBuildTable, end: BuildEnd, built?: Built): Promise<void> {
    const { store, images } = this.#parts;
    const { replaced } = await this.#store(build, end);
    const row = await this.#require({ organizationId: build.organization_id, onlyTeamId: null }, build.id);
    // Before the event: who has read it may build again.
    if (row.state === 'done' && built?.key !== undefined) await this.#cache(build, built.key, built);
    const seq = (await store.lastSeq(build.id)) + 1;
    await store.addEvent(build.id, seq, { type: 'end', build: buildBuildRecord(row) });
    this.#notices.emit(build.id);
    if (replaced !== undefined) await images.releaseReplaced(build.organization_id, replaced);
  }

  /** Stores the end. A build has failed after all if its image was evicted or deleted before it got its name. */
  async #store(build: ImageBuildTable, end: BuildEnd): Promise<{ replaced: string | undefined }> {
    const { store, images, clock } = this.#parts;
    const finish = (how: BuildEnd) => store.end(build, how, clock.wallMs());
    if (typeof end.digest !== 'string') return finish(end);
    try {
      return await images.keepAndName(build.organization_id, end.digest, () => finish(end));
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return finish(failed(error.code, error.message));
    }
  }

  async #cache(
    { id, organization_id: organizationId }: ImageBuildTable,
    key: string,
    built: Built,
  ): Promise<void> {
    try {
      await this.#parts.cache.add(organizationId, key, built);
    } catch (error) {
      this.#parts.log.warn({ err: error, build: id }, 'the result of a build could not be cached');
    }
  }

  /** Never throws: the sandbox ends by its lifetime at the latest. */
  async #destroySandbox(
    { sandbox_id: id, organization_id: organizationId }: ImageBuildTable,
    patienceMs = DESTROY_PATIENCE_MS,
  ): Promise<void> {
    const reach = { organizationId, onlyTeamId: null };
    const until = performance.now() + patienceMs;
    for (;;) {
      try {
        const driver = await this.#parts.sandboxes.getDriver(reach, id, 'destroy');
        await driver.destroy();
        return;
      } catch (error) {
        if (error instanceof AppError && ['not_found', 'invalid_state'].includes(error.code)) return;
        if (performance.now() > until) {
          this.#parts.log.error({ err: error, sandbox: id }, 'the sandbox of a build could not be destroyed');
          return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  /** Gives up the images of the runner without a name or a cached step: their builds were interrupted, or they were deleted. */
  async #sweepImages(): Promise<void> {
    try {
      const built = await this.#parts.runner.images.listOwned({});
      await this.#parts.images.releaseUnused(built.map(({ digest }) => digest));
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'built images without a name could not be removed');
    }
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
