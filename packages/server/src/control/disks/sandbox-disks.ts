/**
 * The disks of sandboxes. A create, a fork and a restore take their disks in the transaction that inserts the sandboxes:
 * of two that want one disk, exactly one gets it. A disk that is made for a sandbox is `creating` until the sandbox
 * runs, and is removed if the sandbox fails.
 */
import { AppError, type SandboxState } from '@coppice/contract';
import type { VmWorkspace } from '../../lib/protocol/disk-protocol.ts';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { Database } from '../db/database.ts';
import { changed, inUse, isGrowing, nameTaken, noDisk, noSnapshot } from './disk-errors.ts';
import { newDiskId } from './disk-ids.ts';
import { pickNames } from './disk-names.ts';
import { checkDiskQuota } from './disk-quota.ts';
import type { DiskStore, NamedDiskRow } from './disk-store.ts';
import { addressOf, type DiskWork } from './disk-work.ts';
import type { Detaching, Detachments } from './detachments.ts';
import { findDetachingOf, findHolderRunner, takeAgain } from './held-disk.ts';
import { enterDiskStep } from './steps.ts';

/** The columns of a sandbox that name its disk. */
export interface DiskOfSandbox {
  disk_id: string;
  disk_name: string;
}

/** Takes the disks for sandboxes, in their order. Call in the transaction that inserts them. */
export type TakeDisks = (transaction: Database) => Promise<DiskOfSandbox[]>;

/** A sandbox and its disk. */
export interface SandboxWithDisk {
  id: string;
  organization_id: string;
  status: SandboxState;
  disk_id: string | null;
  disk_name: string | null;
  disk_version: number | null;
}

/** A disk of which disks for sandboxes are forked. */
interface Source {
  id: string;
  name: string;
  /** Null if the runner decides: the version of the moment of a fork. */
  version: number | null;
  sizeGb: number;
  durability?: NamedDiskRow['durability'];
}

interface ForkForSandboxes {
  owner: Owner;
  sandboxIds: readonly string[];
  source: Source;
  /** Names in the order of the sandboxes. Undefined: the name of the source with numbers. */
  names: readonly string[] | undefined;
  /** Field of the request that has the names, for error messages. */
  field: string;
}

export interface SandboxDisksParts {
  work: DiskWork;
  detachments: Detachments;
  db: Database;
  detachDeadlineMs: number;
}

export class SandboxDisks {
  readonly #work: DiskWork;
  readonly #parts: SandboxDisksParts;

  constructor(parts: SandboxDisksParts) {
    this.#parts = parts;
    this.#work = parts.work;
  }

  /** Takes an existing disk. Throws `not_found` or `disk_in_use`. */
  async planAttach(reach: Reach, sandboxId: string, name: string): Promise<TakeDisks> {
    assertFree(await this.#find(reach, name, 'disk'), 'disk');
    return (transaction) =>
      this.#alone(transaction, reach.organizationId, async (store) => {
        const disk = await store.find(reach, name);
        if (disk === undefined) throw noDisk(name, 'disk');
        assertFree(disk, 'disk');
        await transaction
          .updateTable('disks')
          .set({ sandbox_id: sandboxId, attachment: 'attached' })
          .where('id', '=', disk.id)
          .execute();
        return [{ disk_id: disk.id, disk_name: name }];
      });
  }

  /**
   * Takes a new disk, which is forked from a snapshot of a disk. Throws an ElsewhereError if another control has the
   * runner for it.
   */
  async planFork(
    owner: Owner,
    {
      reach,
      sandboxId,
      from,
      snapshot,
      name,
    }: {
      reach: Reach;
      sandboxId: string;
      from: string;
      snapshot: string;
      name: string | undefined;
    },
  ): Promise<TakeDisks> {
    const disk = await this.#find(reach, from, 'fork_from_disk');
    const taken = await this.#work.snapshots.find(disk.id, snapshot);
    if (taken?.status !== 'ready' || taken.version === null)
      throw noSnapshot(from, snapshot, 'disk_snapshot');
    await this.#work.assertHere(disk);
    const { id, durability } = disk;
    return this.#planForks({
      owner,
      sandboxIds: [sandboxId],
      source: { id, name: from, version: taken.version, sizeGb: taken.size_gb, durability },
      names: name === undefined ? undefined : [name],
      field: 'disk',
    });
  }

  /** Like {@link planFork}, for a sandbox from a snapshot: forked from the disk of that moment. */
  async planRestore(
    owner: Owner,
    sandboxId: string,
    { source, name }: { source: Source & { version: number }; name: string | undefined },
  ): Promise<TakeDisks> {
    await this.#work.assertHere({ id: source.id, organization_id: owner.organizationId });
    const names = name === undefined ? undefined : [name];
    return this.#planForks({ owner, sandboxIds: [sandboxId], source, names, field: 'disk' });
  }

  /** Takes new disks for the children of a fork. The runner makes them with the children. */
  async planChildren(
    parent: SandboxWithDisk & { team_id: string },
    sandboxIds: readonly string[],
    names: readonly string[] | undefined,
  ): Promise<TakeDisks | undefined> {
    if (parent.disk_id === null) {
      if (names === undefined) return undefined;
      throw new AppError('invalid_request', 'disks: the sandbox has no disk');
    }
    const disk = await this.#work.store.findById(parent.disk_id);
    if (disk === undefined) throw noDisk(parent.disk_name ?? '');
    return this.#planForks({
      owner: { organizationId: parent.organization_id, teamId: parent.team_id },
      sandboxIds,
      source: {
        id: disk.id,
        name: disk.name,
        version: null,
        sizeGb: disk.size_gb,
        durability: disk.durability,
      },
      names,
      field: 'disks',
    });
  }

  /**
   * Returns the workspace of a sandbox that is being created or restored; undefined if it has no disk. First has the
   * runner make its disk, if that is a fork. `asCaptured`: the guest has mounted the version of the fork.
   */
  async mount(sandbox: SandboxWithDisk, { asCaptured = false } = {}): Promise<VmWorkspace | undefined> {
    const disk = await this.#findOf(sandbox);
    if (disk === undefined) return undefined;
    const version = await this.#makeFork(disk);
    return { ...buildWorkspace(disk), ...(asCaptured && version !== undefined ? { version } : {}) };
  }

  /**
   * Takes the disk again for a hibernated sandbox. `isFresh`: mounts the disk of that name as it is now. Throws
   * `disk_in_use` or `disk_changed`. If the resume fails, call {@link giveBack}.
   */
  async reattach(
    sandbox: SandboxWithDisk,
    { isFresh }: { isFresh: boolean },
  ): Promise<{ workspace: VmWorkspace; disk: DiskOfSandbox } | undefined> {
    const { id, disk_id, disk_name, disk_version } = sandbox;
    if (disk_id === null || disk_name === null) return undefined;
    await this.#parts.detachments.wait(id, this.#parts.detachDeadlineMs);
    const reach = { organizationId: sandbox.organization_id, onlyTeamId: null };
    const disk = await this.#work.store.find(reach, disk_name);
    const isOther = disk !== undefined && disk.id !== disk_id;
    if (disk === undefined && isFresh) throw noDisk(disk_name);
    if (disk === undefined || (isOther && !isFresh)) throw changed(disk_name);
    if (!(await takeAgain(this.#work.parts.db, { ...sandbox, disk_id: disk.id })))
      throw await this.#explain(disk);
    await enterDiskStep('disk.reattach');
    const version = isFresh || disk_version === null ? {} : { version: disk_version };
    return {
      workspace: { ...buildWorkspace(disk), ...version },
      disk: { disk_id: disk.id, disk_name: disk.name },
    };
  }

  /** Returns the error for the caller of a resume that the runner refused. */
  explainResume({ disk_name: name }: SandboxWithDisk, error: unknown): unknown {
    const isChanged = name !== null && error instanceof AppError && error.code === 'disk_changed';
    return isChanged ? changed(name, error) : error;
  }

  /** Makes the disk of a failed resume free again. Does not throw: it is tried again until it succeeds. */
  async giveBack({ id, disk_id }: SandboxWithDisk): Promise<void> {
    if (disk_id !== null) await this.#parts.detachments.giveBack(id);
  }

  /** Notes the committed state of a sandbox. */
  noteState({ id, status, disk_id, organization_id }: SandboxWithDisk): void {
    if (disk_id === null || status === 'creating' || status === 'running') return;
    this.#parts.detachments.begin({ id: disk_id, organization_id, sandbox_id: id });
  }

  /** Returns what is known of a disk that the sandbox no longer uses, while it is not free yet. */
  findDetaching(sandboxId: string): Detaching | undefined {
    return this.#parts.detachments.find(sandboxId);
  }

  /** Like {@link findDetaching}, also for sandboxes of other controls, from SQL. Returns those that are known, by sandbox. */
  async listDetaching(sandboxIds: readonly string[]): Promise<Map<string, Detaching>> {
    const { detachments, db } = this.#parts;
    const found = new Map<string, Detaching>();
    for (const id of sandboxIds) {
      const own = detachments.find(id);
      if (own !== undefined) found.set(id, own);
    }
    const others = await findDetachingOf(
      db,
      sandboxIds.filter((id) => !found.has(id)),
    );
    return new Map([...others, ...found]);
  }

  /** Resolves when the disk of a sandbox that has ended is free, or after a while. */
  waitUntilDetached(sandboxId: string): Promise<void> {
    return this.#parts.detachments.wait(sandboxId, this.#parts.detachDeadlineMs);
  }

  /** Returns the workspace with which a sandbox is rolled back; undefined if it has no disk. */
  async buildRollback(sandbox: SandboxWithDisk, version: number | null): Promise<VmWorkspace | undefined> {
    const disk = await this.#findOf(sandbox);
    if (disk === undefined || version === null) return undefined;
    return { ...buildWorkspace(disk), version };
  }

  /** Returns undefined if the disk was deleted. */
  findSource(diskId: string): Promise<NamedDiskRow | undefined> {
    return this.#work.store.findById(diskId);
  }

  /** Returns whether a sandbox has the disk, or has ended and not given it back yet. */
  async isHeld(diskId: string): Promise<boolean> {
    return (await findHolderRunner(this.#work.parts.db, diskId)) !== undefined;
  }

  async #findOf({ disk_id, disk_name }: SandboxWithDisk): Promise<NamedDiskRow | undefined> {
    if (disk_id === null) return undefined;
    const disk = await this.#work.store.findById(disk_id);
    if (disk === undefined) throw noDisk(disk_name ?? '');
    return disk;
  }

  /** Has the runner make a disk that is a fork. Returns its version; undefined if it was ready. */
  async #makeFork(disk: NamedDiskRow): Promise<number | undefined> {
    const { id, organization_id, status, parent_id, parent_version: version } = disk;
    if (status === 'ready' || parent_id === null || version === null) return undefined;
    await enterDiskStep('disk.mount');
    try {
      const parent = addressOf({ id: parent_id, organization_id });
      const state = await this.#work.insist(async (leftMs) =>
        (await this.#work.runnerOf(parent)).fork(parent, { version, to: id }, leftMs),
      );
      await enterDiskStep('disk.mounted');
      await this.#work.store.noteState(id, state);
      return state.version;
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'not_found')) throw error;
      throw new AppError('snapshot_unusable', 'the object store no longer has the version of the disk', {
        cause: error,
      });
    }
  }

  #planForks({ owner, sandboxIds, source, names, field }: ForkForSandboxes): TakeDisks {
    const { organizationId, teamId } = owner;
    return (transaction) =>
      this.#alone(transaction, organizationId, async (store) => {
        const parent = await store.findById(source.id);
        if (parent?.status !== 'ready') throw noDisk(source.name);
        // A fork of the disk as it is gets the size that the disk has then.
        const isCurrent = source.version === null;
        if (isCurrent && parent.growing_to_gb !== null) throw isGrowing(parent.name);
        const sizeGb = isCurrent ? parent.size_gb : source.sizeGb;
        const gb = sizeGb * sandboxIds.length;
        const limits = this.#work.parts.limitsOf(organizationId);
        checkDiskQuota(limits, await store.sum(organizationId), { disks: sandboxIds.length, gb });
        const chosen = await chooseNames(store, {
          organizationId,
          count: sandboxIds.length,
          names,
          field,
          source,
        });
        const now = this.#work.nowMs;
        const rows = sandboxIds.map((sandboxId, index) => ({
          id: newDiskId(),
          organization_id: organizationId,
          team_id: teamId,
          name: chosen[index] ?? '',
          status: 'creating' as const,
          size_gb: sizeGb,
          durability: source.durability ?? parent.durability,
          sandbox_id: sandboxId,
          attachment: 'attached' as const,
          parent_id: source.id,
          parent_version: source.version,
          stored_at: now,
          created_at: now,
        }));
        await store.insert(rows);
        return rows.map(({ id, name }) => ({ disk_id: id, disk_name: name }));
      });
  }

  #alone<T>(
    transaction: Database,
    organizationId: string,
    work: (store: DiskStore) => Promise<T>,
  ): Promise<T> {
    return this.#work.store.within(transaction).alone(organizationId, work);
  }

  async #find(reach: Reach, name: string, field: string): Promise<NamedDiskRow> {
    const disk = await this.#work.store.find(reach, name);
    if (disk === undefined) throw noDisk(name, field);
    return disk;
  }

  async #explain({ id, name }: NamedDiskRow): Promise<AppError> {
    const disk = await this.#work.store.findById(id);
    return disk === undefined || disk.sandbox_id === null ? changed(name) : inUse(disk);
  }
}

interface Choice {
  organizationId: string;
  count: number;
  names: readonly string[] | undefined;
  field: string;
  source: Source;
}

async function chooseNames(
  store: DiskStore,
  { organizationId, count, names, field, source }: Choice,
): Promise<readonly string[]> {
  const taken = await store.listNames(organizationId);
  if (names === undefined) return pickNames(source.name, count, taken);
  const seen = new Set(taken);
  for (const name of names) {
    if (seen.has(name)) throw nameTaken(name, field);
    seen.add(name);
  }
  return names;
}

function assertFree(disk: NamedDiskRow, field: string): void {
  if (disk.sandbox_id !== null) throw inUse(disk, field);
}

function buildWorkspace({ id, organization_id, durability }: NamedDiskRow): VmWorkspace {
  return { organization: organization_id, disk: id, durability };
}
