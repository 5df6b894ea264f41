/** Sandboxes of each organization: live ones of this control through their drivers, others from SQL. */
import {
  AppError,
  isFinal,
  parseImageReference,
  type CreateSandboxRequest,
  type NetworkPolicy,
  type PatchSandboxRequest,
  type RestoreSandboxRequest,
  type SandboxRecord,
  type SandboxRequest,
  type SandboxTree,
} from '@coppice/contract';
import type { ForkedVms } from '../../lib/protocol/runner-protocol.ts';
import { traced } from '../../lib/tracing/tracing.ts';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { Credit } from '../billing/credit/credit.ts';
import type { SandboxDisks, TakeDisks } from '../disks/sandbox-disks.ts';
import type { BuiltImages } from '../images/built-images.ts';
import type { ImageUses } from '../images/image-uses.ts';
import type { Registries } from '../registries/registries.ts';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import { isRefusal, type Place, type Runners } from '../runners/runners.ts';
import type { RunnerClaims } from '../ownership/runner-claims.ts';
import { ElsewhereError } from '../placement/elsewhere.ts';
import type { CaptureObjectStore } from '../snapshots/capture-object-store.ts';
import type { SandboxRow } from './record/sandbox-tables.ts';
import type { SnapshotRow, WholeSnapshotRow } from '../snapshots/snapshot-tables.ts';
import type { Grant } from '../egress/grant.ts';
import type { Grants } from '../egress/grants.ts';
import type { Environments } from './environment/environments.ts';
import type { FamilyStore } from './record/family-store.ts';
import { bootChildren, readFork, type ForkedChild } from './forking.ts';
import type { Subject } from './idempotency.ts';
import { listChildIds } from './record/ids.ts';
import type { LeftSandboxes } from './live/left-sandboxes.ts';
import type { LiveDrivers } from './live/live-drivers.ts';
import { buildChildRow, buildCreatedRow, buildRestoredRow } from './record/new-row.ts';
import { buildRefusal } from './record/refusal.ts';
import { enterRecordStep } from './record/steps.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';
import type { SandboxFilter, SandboxStore } from './record/sandbox-store.ts';
import { SandboxLists, type ListedSandboxes } from './sandbox-lists.ts';

export interface SandboxesParts {
  drivers: LiveDrivers;
  left: LeftSandboxes;
  store: SandboxStore;
  runners: Runners;
  claims: Pick<RunnerClaims, 'isOwned'>;
  captureObjects: Pick<CaptureObjectStore, 'isStored'>;
  region: string;
  registries: Registries;
  imageUses: ImageUses;
  builtImages: Pick<BuiltImages, 'pin' | 'listHolders'>;
  family: FamilyStore;
  credit: Credit;
  grants: Grants;
  audit: Pick<AuditLog, 'hasRollback'>;
  disks: SandboxDisks;
  environments: Environments;
}

/** Network policy and credentials in a request. */
export interface RequestedEgress {
  /** Null restricts nothing. Undefined if the request leaves it out. */
  network: NetworkPolicy | null | undefined;
  grants: readonly Grant[];
}

export interface CreateSandbox {
  owner: Owner;
  reach: Reach;
  /** From `newSandboxId()`. */
  id: string;
  request: CreateSandboxRequest;
  /** Reference of an image of the organization that has no name, instead of that of the request. */
  image?: string | undefined;
  egress: RequestedEgress;
}

export interface ForkSandbox {
  reach: Reach;
  /** Id of the parent. */
  id: string;
  /** From `newForkId()`: the children's ids are derived from it. */
  forkId: string;
  count: number;
  /** Names of the children's disks. */
  disks?: readonly string[] | undefined;
}

export interface RestoreSandbox {
  /** From `newSandboxId()`. */
  id: string;
  snapshot: WholeSnapshotRow;
  /** Team that will own the sandbox, in the snapshot's organization. */
  teamId: string;
  request: RestoreSandboxRequest;
  egress: RequestedEgress;
}

const SANDBOX_ID = /^run[0-9a-f]{20}$/;

export class Sandboxes {
  readonly #parts: SandboxesParts;
  readonly #store: SandboxStore;
  readonly #runners: Runners;
  readonly #drivers: LiveDrivers;
  readonly #lists: SandboxLists;

  constructor(parts: SandboxesParts) {
    this.#parts = parts;
    this.#store = parts.store;
    this.#runners = parts.runners;
    this.#drivers = parts.drivers;
    this.#lists = new SandboxLists(parts);
  }

  /** Resolves when a first command can run. A create that fails leaves only a `failed` record. */
  create(create: CreateSandbox): Promise<SandboxRecord> {
    return traced('sandbox.create', () => this.#create(create), {
      attributes: { 'coppice.sandbox.id': create.id },
    });
  }

  async #create({ owner, reach, id, request, egress, ...create }: CreateSandbox): Promise<SandboxRecord> {
    const { organizationId } = owner;
    const image = create.image ?? (await this.#parts.builtImages.pin(organizationId, request.image));
    const reference = parseImageReference(image);
    const login = await this.#parts.registries.findLogin(organizationId, reference);
    // Before credit, quota and capacity: a caller that asks for a name must learn that its sandbox exists.
    if (request.name !== undefined) await this.#store.assertNameFree(owner.teamId, request.name);
    await enterRecordStep('record.insert');
    await this.#parts.credit.require(organizationId);
    const { vcpus, mem_mib, disk_mib } = request;
    await this.#drivers.checkQuota(organizationId, [request]);
    // Refuses before a record exists: callers that retry would leave a record each time.
    const holders = await this.#parts.builtImages.listHolders(image);
    using place = await this.#runners.admit(id, { ...request, image }, holders);
    const takeDisks = await this.#planDisk(owner, reach, id, request);
    const holder = { id, organization_id: organizationId };
    const sealedEnv = this.#parts.environments.seal(holder, request.env);
    const asked = { request, network: egress.network ?? null, sealedEnv };
    const driver = await this.#drivers.insert(
      buildCreatedRow(this.#begin(id, place.runner), owner, asked),
      takeDisks,
    );
    const wanted = { image, vcpus, mem_mib, disk_mib, organization: organizationId, login };
    const record = await driver.boot.create(wanted, egress.grants);
    place.runner.images.note(record.image, request);
    await this.#parts.imageUses.note(organizationId, record.image);
    return record;
  }

  /** Copies a running sandbox. Children that fail leave `failed` records. Throws if all of them fail. */
  fork(fork: ForkSandbox): Promise<ForkedChild[]> {
    const attributes = { 'coppice.sandbox.id': fork.id, 'coppice.fork.count': fork.count };
    return traced('sandbox.fork', () => this.#fork(fork), { attributes });
  }

  async #fork({ reach, id, forkId, count, disks }: ForkSandbox): Promise<ForkedChild[]> {
    const parent = await this.getDriver(reach, id);
    await this.#parts.credit.require(reach.organizationId);
    await using _ = await parent.copies.begin('fork');
    const ids = listChildIds(forkId, count);
    const { environments } = this.#parts;
    const variables = await environments.read(parent.row);
    const runner = this.#runners.get(parent.row.runner_id);
    const rows = ids.map((child) => {
      const sealedEnv = environments.seal({ ...parent.row, id: child }, variables);
      return buildChildRow(this.#begin(child, runner), parent.row, { forkId, sealedEnv });
    });
    const takeDisks = await this.#parts.disks.planChildren(parent.row, ids, disks);
    const children = await this.#drivers.insertAll(rows, takeDisks);
    return await bootChildren(children, this.#forkVm(parent, children));
  }

  /** Changes settings of a sandbox, all or none, and restarts its idle timer. */
  async configure(reach: Reach, id: string, settings: PatchSandboxRequest): Promise<SandboxRecord> {
    const driver = await this.getDriver(reach, id, 'configure');
    const { env } = settings;
    return driver.configure(settings, env && this.#parts.environments.seal(driver.row, env));
  }

  /** Creates a sandbox from a snapshot. A restore that fails leaves only a `failed` record. */
  restore(restore: RestoreSandbox): Promise<SandboxRecord> {
    return traced('sandbox.restore', () => this.#restore(restore), {
      attributes: { 'coppice.sandbox.id': restore.id },
    });
  }

  async #restore({ id, snapshot, teamId, request, egress }: RestoreSandbox): Promise<SandboxRecord> {
    await enterRecordStep('record.insert');
    await this.#parts.credit.require(snapshot.organization_id);
    await this.#drivers.checkQuota(snapshot.organization_id, [snapshot]);
    const takeDisks = await this.#planRestoredDisk({ id, snapshot, teamId, request });
    using place = await this.#findPlace(id, snapshot);
    const { environments } = this.#parts;
    const env = request.env ?? environments.open(snapshot, snapshot.sealed_env);
    const sealedEnv = environments.seal({ ...snapshot, id }, env);
    const asked = { request, network: egress.network, sealedEnv };
    const row = buildRestoredRow(this.#begin(id, place.runner), { snapshot, teamId }, asked);
    const driver = await this.#drivers.insert(row, takeDisks);
    return await driver.boot.restore(snapshot.id, egress.grants);
  }

  /**
   * Rolls a sandbox back to a snapshot of it or of an ancestor: memory, processes and files. Throws `invalid_state` for
   * other snapshots, and for those of another shape.
   */
  async rollBack(
    reach: Reach,
    id: string,
    { rollbackId, snapshot }: { rollbackId: string; snapshot: SnapshotRow },
  ): Promise<SandboxRecord> {
    const driver = await this.getDriver(reach, id);
    // An ancestor in between may be another team's. Only the sandbox and the snapshot must be within reach.
    const family = { ...reach, onlyTeamId: null };
    const isOfFamily = await this.#parts.family.isOrDescends(family, id, snapshot.run_id);
    if (!isOfFamily || !isSameShape(driver.row, snapshot)) throw notOfIts(snapshot);
    if (driver.row.disk_id !== snapshot.disk_id) throw notOfItsDisk(snapshot);
    return driver.rollback.rollBack(rollbackId, snapshot);
  }

  /** Returns the outcome of a rollback, for its Idempotency-Key. Finishes the rollback if it is pending. */
  async findRollback(reach: Reach, id: string, rollbackId: string): Promise<Subject<SandboxRecord>> {
    const driver = this.#drivers.findWithin(reach, id);
    if ((await driver?.rollback.resolve(rollbackId)) === 'pending') return 'begun';
    const isDone = await this.#parts.audit.hasRollback(id, rollbackId);
    return isDone ? { status: 200, body: await this.get(reach, id) } : 'nothing';
  }

  /** Throws `not_found` if there is no such sandbox within reach. */
  async getTree(reach: Reach, id: string): Promise<SandboxTree> {
    const tree = SANDBOX_ID.test(id) ? await this.#parts.family.findTree(reach, id) : undefined;
    if (tree === undefined) throw notFound(id);
    return tree;
  }

  /** Throws `not_found` if there is no such sandbox within reach. */
  async get(reach: Reach, id: string): Promise<SandboxRecord> {
    const record = await this.find(reach, id);
    if (record === undefined) throw notFound(id);
    return record;
  }

  async find(reach: Reach, id: string): Promise<SandboxRecord | undefined> {
    const driver = this.#drivers.findWithin(reach, id);
    if (driver !== undefined) return driver.record;
    return SANDBOX_ID.test(id) ? this.#lists.find(reach, id) : undefined;
  }

  /** Returns the outcome of a create or a restore, for its Idempotency-Key. */
  async findSubject(reach: Reach, id: string): Promise<Subject<SandboxRecord>> {
    const record = await this.find(reach, id);
    if (record === undefined || record.status === 'failed') return 'nothing';
    return record.status === 'creating' ? 'begun' : { status: 201, body: record };
  }

  /** Returns the outcome of a fork, in the order of its children. */
  async findFork({ reach, forkId, count }: ForkSandbox): Promise<'nothing' | 'begun' | ForkedChild[]> {
    const ids = listChildIds(forkId, count);
    const records = await this.#lists.findAll(reach, ids);
    return readFork(ids.map((child) => records.get(child)));
  }

  /**
   * Returns the driver of a live sandbox. Throws `invalid_state` if the sandbox has ended, `not_found` if there is none
   * within reach, and an {@link ElsewhereError} if another control has its runner.
   */
  async getDriver(reach: Reach, id: string, request: SandboxRequest = 'use'): Promise<SandboxDriver> {
    const driver = this.#drivers.findWithin(reach, id);
    if (driver !== undefined && this.#isStaying(driver.home)) return driver;
    const record = await this.get(reach, id);
    if (isFinal(record.status)) throw buildRefusal(request, record);
    const row = await this.#store.get(id);
    const taken = await this.#parts.left.take(row);
    if (taken !== undefined) return taken;
    const { runner_id: at } = row;
    // Without a driver here it is elsewhere, or its runner is being taken.
    if (at !== null) throw new ElsewhereError(at);
    throw new AppError('unavailable', 'the runner of the sandbox is not connected; try again');
  }

  /** Whether this control has the runner, and is not about to give it to another one. */
  #isStaying(runner: OwnedRunner): boolean {
    return this.#runners.find(runner.id) === runner && !runner.isLeaving;
  }

  /** Returns matching sandboxes of all controls, the newest first. */
  list(filter: SandboxFilter): Promise<ListedSandboxes> {
    return this.#lists.list(filter);
  }

  /** Has the runner make the children's VMs, with the parent's secrets. */
  async #forkVm(parent: SandboxDriver, children: readonly SandboxDriver[]): Promise<ForkedVms> {
    await enterRecordStep('record.fork');
    await this.#parts.grants.copy(
      parent.row,
      children.map(({ row }) => row),
    );
    const disks = children.flatMap(({ row }) => row.disk_id ?? []);
    const forked = await parent.copies.fork({
      children: children.map(({ row }) => row.id),
      ...(disks.length === 0 ? {} : { disks }),
    });
    await enterRecordStep('record.forked');
    return forked;
  }

  async #planDisk(
    owner: Owner,
    reach: Reach,
    sandboxId: string,
    { disk: name, fork_from_disk: from, disk_snapshot: snapshot }: CreateSandboxRequest,
  ): Promise<TakeDisks | undefined> {
    const { disks } = this.#parts;
    if (from !== undefined && snapshot !== undefined)
      return disks.planFork(owner, { reach, sandboxId, from, snapshot, name });
    return name === undefined ? undefined : disks.planAttach(reach, sandboxId, name);
  }

  async #planRestoredDisk({
    id,
    snapshot,
    teamId,
    request,
  }: Omit<RestoreSandbox, 'egress'>): Promise<TakeDisks | undefined> {
    const { disk_id: diskId, disk_version: version, disk_gb: sizeGb } = snapshot;
    if (diskId === null || version === null || sizeGb === null) {
      if (request.disk === undefined) return undefined;
      throw new AppError('invalid_request', 'disk: the sandbox of the snapshot had no disk');
    }
    const disk = await this.#parts.disks.findSource(diskId);
    if (disk?.status !== 'ready')
      throw new AppError('snapshot_unusable', `the disk ${snapshot.disk_name} of the snapshot was deleted`);
    const owner = { organizationId: snapshot.organization_id, teamId };
    const source = { id: diskId, name: disk.name, version, sizeGb };
    return this.#parts.disks.planRestore(owner, id, { source, name: request.disk });
  }

  /** Reserves room for a restore: where the capture is, or anywhere if it is in the object store. */
  async #findPlace(id: string, snapshot: WholeSnapshotRow): Promise<Place> {
    const { runner_id: home } = snapshot;
    const isStored = await this.#parts.captureObjects.isStored(snapshot.id);
    const local = home === null ? undefined : this.#runners.find(home);
    // A runner of this control has the disk to fork, so that no other control can restore it.
    const isBound = snapshot.disk_id !== null && (await this.#parts.disks.isHeld(snapshot.disk_id));
    if (!isStored && local === undefined && isBound) throw apart(snapshot);
    if (!isStored) return this.#runners.admit(id, snapshot, [local ?? this.#runners.get(home)]);
    try {
      if (local !== undefined) return await this.#runners.admit(id, snapshot, [local]);
    } catch (error) {
      if (!(error instanceof AppError && isRefusal(error))) throw error;
    }
    // Its control restores it without fetching it first.
    if (!isBound && local === undefined && home !== null && (await this.#parts.claims.isOwned(home)))
      throw new ElsewhereError(home);
    return this.#runners.admit(id, snapshot);
  }

  #begin(id: string, runner: OwnedRunner) {
    return { id, region: this.#parts.region, runnerId: runner.id, now: runner.presence.now() };
  }
}

function notFound(id: string): AppError {
  return new AppError('not_found', `there is no sandbox ${JSON.stringify(id.slice(0, 64))}`);
}

function apart({ runner_id: runner, disk_name: disk }: SnapshotRow): AppError {
  const message = `the snapshot is only at the runner ${runner}, and the disk ${disk} is in use at another one`;
  return new AppError('unavailable', `${message}; try again when the disk is free`);
}

function isSameShape(row: SandboxRow, snapshot: SnapshotRow): boolean {
  const { vcpus, mem_mib, disk_mib } = snapshot;
  return row.vcpus === vcpus && row.mem_mib === mem_mib && row.disk_mib === disk_mib;
}

function notOfItsDisk({ id, disk_name }: SnapshotRow): AppError {
  const had = disk_name === null ? 'without a disk' : `with the disk ${JSON.stringify(disk_name)}`;
  const message = `the snapshot ${id} was taken ${had}, which is not as the sandbox is now; restore it instead`;
  return new AppError('invalid_state', message);
}

function notOfIts({ id, run_id }: SnapshotRow): AppError {
  return new AppError(
    'invalid_state',
    `the snapshot ${id} was taken of ${run_id}, which is neither this sandbox nor an ancestor of the same shape; restore it instead`,
  );
}
