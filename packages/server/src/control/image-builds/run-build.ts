/**
 * One build, from its image to the new image:
 *
 *   prepare the image ─► keys of the steps ─► longest cached prefix ─► create the sandbox from it ─► the other steps
 *       ─► the runner makes an image of its files
 *
 * If all steps are cached, the new image exists already, and no sandbox is created.
 */
import { AppError, BUILT_REGISTRY, parseImageReference, type CreateSandboxRequest } from '@coppice/contract';
import type { BuildImageRequest } from '@coppice/contract';
import type { PreparedImage, StoredConfig } from '../../lib/protocol/runner-protocol.ts';
import type { KeyedQueue } from '../../lib/waiting/keyed-queue.ts';
import type { Slots } from '../../lib/waiting/slots.ts';
import type { Commands } from '../commands/commands.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { BuiltImages } from '../images/built-images.ts';
import type { ControlLimits } from '../control-config.ts';
import type { NewImage, RunnerClient } from '../placement/runner-client.ts';
import type { Runners } from '../runners/runners.ts';
import type { Registries } from '../registries/registries.ts';
import type { CreateSandbox, RequestedEgress } from '../sandbox/sandboxes.ts';
import type { BuildLog } from './build-log.ts';
import type { BuildSandboxes } from './build-sandboxes.ts';
import type { BuildStore } from './build-store.ts';
import { BuildSteps, describeStep } from './build-steps.ts';
import type { ContextFiles } from './context-index.ts';
import { CopySources } from './copy-sources.ts';
import { outliveRunner } from './outlive-runner.ts';
import type { PlannedStep } from './planned-step.ts';
import { MAX_STEP_BYTES, type CachedImage, type Hit, type StepCache } from './step-cache.ts';
import { listStepKeys } from './step-keys.ts';
import { StepScope } from './step-scope.ts';

/** Bytes of all built images of one organization that have a name, as stored. */
const MAX_STORED_BYTES = 20 * 2 ** 30;
/** Ends the sandbox of a build if nothing else does. */
const SANDBOX_GRACE_S = 3600;

export interface BuildParts {
  store: Pick<BuildStore, 'setStepsDone'>;
  images: Pick<BuiltImages, 'pin' | 'usedBytes' | 'list' | 'listHolders' | 'keep'>;
  cache: StepCache;
  registries: Pick<Registries, 'findLogin'>;
  sandboxes: Pick<BuildSandboxes, 'create'>;
  /** By organization: its builds make images one after another, so that each knows the room that the others left. */
  turns: KeyedQueue;
  /** See {@link CopySources}. */
  searches: Slots;
  commands: Commands;
  runners: Pick<Runners, 'any'>;
  runnerOf: (sandboxId: string) => RunnerClient;
  limits: Pick<ControlLimits, 'runnerOutageDeadlineMs'>;
}

export interface Plan {
  from: string;
  steps: readonly PlannedStep[];
  notes: readonly string[];
  /** See {@link StepScope}. */
  escape: string | undefined;
  /** See {@link StepScope}. */
  proxies?: Readonly<Record<string, string>>;
}

export interface Work {
  request: BuildImageRequest;
  plan: Plan;
  context: ContextFiles | undefined;
  egress: RequestedEgress;
}

export interface RunningWork extends Work {
  signal: AbortSignal;
  log: BuildLog;
  /** When the build must be done, in `performance.now()`. */
  deadlineMs: number;
  /** Keeps an image from being given up until the build has ended. */
  hold: (digest: string) => void;
}

export interface Built extends CachedImage {
  /** Key of its last step, if it has one. */
  key: string | undefined;
}

type Base = Pick<StoredConfig, 'digest' | 'config'>;

/** Resolves with the new image, which has no name yet. */
export async function runBuild(parts: BuildParts, build: ImageBuildTable, work: RunningWork): Promise<Built> {
  const { request, plan, context, signal, log } = work;
  const { organization_id: organizationId, team_id: teamId } = build;
  if (plan.notes.length > 0) await log.note(plan.notes.join('\n'));
  const base = await prepareBase(parts, build, { image: plan.from, signal });
  const { steps, escape, proxies } = plan;
  const rights = { organizationId, teamId, egress: work.egress };
  const copies =
    context && new CopySources({ context, steps, organizationId, searches: parts.searches, signal });
  const keys = await listStepKeys({ rights, base, steps, escape, proxies, copies, signal });
  const hit = request.no_cache ? undefined : await parts.cache.find(organizationId, keys);
  if (hit !== undefined) work.hold(hit.digest);
  const scope = new StepScope(base.config, escape, proxies);
  const done = hit?.steps ?? 0;
  for (const [index, step] of steps.slice(0, done).entries()) {
    await log.step(index, describeStep(step), { cached: true });
    scope.take(scope.expand(step));
  }
  if (done > 0) await noteProgress(parts.store, build.id, done);
  const key = keys.length === steps.length ? keys.at(-1) : undefined;
  if (hit !== undefined && done === steps.length) {
    await parts.turns.run(organizationId, () => keepHit(parts, organizationId, hit), signal);
    return { digest: hit.digest, size_bytes: hit.size_bytes, key };
  }
  await createSandbox(parts, build, { ...work, base, hit });
  return { ...(await applySteps(parts, build, { ...work, scope, copies, keys, done })), key };
}

/** Returns the bytes that the organization's images may still take. Throws `capacity` if there are none. */
export async function roomOf(
  images: Pick<BuiltImages, 'usedBytes'>,
  organizationId: string,
): Promise<number> {
  const left = MAX_STORED_BYTES - (await images.usedBytes(organizationId));
  if (left > 0) return left;
  throw new AppError(
    'capacity',
    `the built images of your organization take ${MAX_STORED_BYTES} bytes, which is all they may; delete some`,
  );
}

/** The count of steps is for people who look; a build does not fail because of it. */
async function noteProgress(store: BuildParts['store'], id: string, stepsDone: number): Promise<void> {
  await store.setStepsDone(id, stepsDone).catch(() => undefined);
}

/** Has the image of the last step kept, if there is room for it. */
async function keepHit(parts: BuildParts, organizationId: string, hit: CachedImage): Promise<void> {
  await requireRoom(parts, organizationId, hit);
  await parts.images.keep(organizationId, hit.digest);
}

async function requireRoom(
  { images }: BuildParts,
  organizationId: string,
  { digest, size_bytes }: CachedImage,
): Promise<void> {
  const left = await roomOf(images, organizationId);
  const isNamed = (await images.list(organizationId)).some((row) => row.digest === digest);
  if (isNamed || size_bytes <= left) return;
  throw new AppError(
    'capacity',
    `the image has ${size_bytes} bytes, and your organization has room for ${left} more; delete built images that you do not need`,
  );
}

/** Pulls the image. A template is made once a sandbox needs it. */
async function prepareBase(
  { images, registries, runners }: BuildParts,
  { organization_id: organization }: ImageBuildTable,
  { image: asked, signal }: { image: string; signal: AbortSignal },
): Promise<Base> {
  const image = await images.pin(organization, asked);
  const login = await registries.findLogin(organization, parseImageReference(image));
  const wanted: NewImage = { image, shapes: [], templates: false, organization, login };
  const holders = await images.listHolders(image);
  const holder = holders?.find(({ isConnected }) => isConnected) ?? holders?.[0] ?? runners.any();
  const runner = holder.client;
  let prepared: PreparedImage | undefined;
  for await (const event of runner.prepareImage(wanted, signal)) {
    if (event.type === 'error') throw new AppError(event.error.code, event.error.message);
    if (event.type === 'prepared') prepared = event.image;
  }
  signal.throwIfAborted();
  if (prepared === undefined)
    throw new AppError('unavailable', 'the runner stopped in the middle of the preparation; build again');
  return runner.images.find(prepared.digest);
}

async function createSandbox(
  { sandboxes, runnerOf }: BuildParts,
  build: ImageBuildTable,
  { request, egress, log, signal, base, hit }: RunningWork & { base: Base; hit: Hit | undefined },
): Promise<void> {
  const { organization_id: organizationId, team_id: teamId, sandbox_id: id } = build;
  const from = hit === undefined ? build.base : 'the cached steps';
  await log.note(`creating the sandbox ${id} from ${from}`);
  const create: CreateSandbox = {
    owner: { organizationId, teamId },
    reach: { organizationId, onlyTeamId: teamId },
    id,
    request: buildCreate(build.base, request),
    image: hit && `${BUILT_REGISTRY}/${STEP_REPOSITORY}@${hit.digest}`,
    egress,
  };
  try {
    await sandboxes.create(create, signal);
  } catch (error) {
    const isGone = hit !== undefined && error instanceof AppError && error.code === 'image_not_found';
    throw isGone ? new AppError('unavailable', STEP_GONE, { cause: error }) : error;
  }
  const { digest } = await runnerOf(id).images.read(id);
  if (digest !== (hit ?? base).digest)
    throw new AppError('unavailable', `the image ${build.base} has changed in the meantime; build again`);
}

const STEP_GONE = 'the cached steps were removed in the moment that the build began with them; build again';

/** Images of steps have no name of their own; the digest finds them. */
const STEP_REPOSITORY = 'step';

/** Applies the steps that are not cached, and makes the image. */
async function applySteps(
  { store, images, cache, commands, runnerOf, limits, turns }: BuildParts,
  build: ImageBuildTable,
  work: RunningWork & {
    scope: StepScope;
    copies: CopySources | undefined;
    keys: readonly string[];
    done: number;
  },
): Promise<CachedImage> {
  const { plan, copies, signal, log, deadlineMs, scope, keys, done } = work;
  const { organization_id: organizationId, team_id: teamId, sandbox_id: sandboxId } = build;
  const reach = { organizationId, onlyTeamId: teamId };
  const { files } = runnerOf(sandboxId);
  const parts = { reach, sandboxId, commands, files, copies, limits, log, signal, deadlineMs };
  const steps = new BuildSteps(parts, scope);
  const commit = (kept: boolean, findRoom: () => Promise<number>): Promise<CachedImage> =>
    turns.run(
      organizationId,
      async () => {
        const room = { kept, max_bytes: await findRoom() };
        const image = { organization: organizationId, build: build.id, config: scope.config, ...room };
        return outliveRunner({ limits, signal, deadlineMs }, () =>
          runnerOf(sandboxId).images.commit(sandboxId, image, signal),
        );
      },
      signal,
    );
  const saver = new StepSaver({ signal, log }, async (key) => {
    const saved = await commit(false, () => Promise.resolve(MAX_STEP_BYTES));
    await cache.add(organizationId, key, saved);
  });
  for (const [index, step] of plan.steps.entries()) {
    if (index < done) continue;
    await saver.measure(() => steps.apply(step, index));
    await noteProgress(store, build.id, index + 1);
    const key = keys[index];
    const isLast = index === plan.steps.length - 1;
    if (!isLast && key !== undefined && changesFiles(step)) await saver.save(key);
  }
  signal.throwIfAborted();
  await log.note('making the image');
  return commit(true, () => roomOf(images, organizationId));
}

/** A directory that WORKDIR makes is made again in a moment. */
function changesFiles({ run, copy }: PlannedStep): boolean {
  return run !== undefined || copy !== undefined;
}

/**
 * Saves what steps have left, if that is worth it. To save costs the packing of a whole image. So the first step that changes
 * files is saved, and another one once the steps since then have taken as long as the last saving. A build takes at most twice
 * as long as without, and a later build repeats at most as much work as one saving costs.
 */
class StepSaver {
  readonly #parts: { signal: AbortSignal; log: BuildLog };
  readonly #store: (key: string) => Promise<void>;
  #workMs = 0;
  #savingMs = 0;
  #hasFailed = false;

  constructor(parts: { signal: AbortSignal; log: BuildLog }, store: (key: string) => Promise<void>) {
    this.#parts = parts;
    this.#store = store;
  }

  async measure(work: () => Promise<void>): Promise<void> {
    const startedMs = performance.now();
    await work();
    this.#workMs += performance.now() - startedMs;
  }

  /** A build does not fail because a step cannot be saved. It then saves no others either. */
  async save(key: string): Promise<void> {
    const { signal, log } = this.#parts;
    if (this.#hasFailed || this.#workMs < this.#savingMs) return;
    const startedMs = performance.now();
    try {
      await this.#store(key);
    } catch (error) {
      signal.throwIfAborted();
      this.#hasFailed = true;
      const reason = error instanceof AppError ? error.message : 'a fault of the service';
      await log.note(`the steps from here on are not cached: ${reason}`);
    }
    this.#savingMs = performance.now() - startedMs;
    this.#workMs = 0;
  }
}

function buildCreate(
  image: string,
  { vcpus, mem_mib, disk_mib, timeout }: BuildImageRequest,
): CreateSandboxRequest {
  return {
    image,
    vcpus,
    mem_mib,
    disk_mib,
    // Its steps keep it, and the build destroys it; the lifetime is for a build that cannot.
    timeout: 0,
    max_lifetime: timeout + SANDBOX_GRACE_S,
    labels: {},
  };
}
