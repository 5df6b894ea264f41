/**
 * Persistent disks of each organization. A disk is a row in SQL and a disk at the runner, made and removed in this
 * order, so that a disk at the runner is never without a row and a row that is `ready` never without a disk:
 *
 *     row `creating` ─► disk ─► row `ready`   …   row `deleting` ─► disk removed ─► row removed
 *
 * The keeper (disk-keeper.ts) removes a row that is `creating` or `deleting` without an operation, with its disk.
 */
import {
  AppError,
  DISK_GB_BYTES,
  type CreateDiskRequest,
  type DiskRecord,
  type ForkDiskRequest,
  type PatchDiskRequest,
} from '@coppice/contract';
import type { Readable } from 'node:stream';
import type { DiskFormat, DiskState } from '../../lib/protocol/disk-protocol.ts';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { RunnerAnswer } from '../placement/runner-connection.ts';
import type { DiskAddress, RunnerDisks } from '../placement/runner-disks.ts';
import { isUnanswered, takenBack } from '../placement/runner-error.ts';
import type { Subject } from '../sandbox/idempotency.ts';
import { hasForks, inUse, isForking, isGrowing, nameTaken, noDisk, noSnapshot } from './disk-errors.ts';
import { checkDiskQuota, findImportLimit, imageTooLarge } from './disk-quota.ts';
import { buildDiskRecord } from './disk-record.ts';
import type { DiskFilter, DiskStore, NamedDiskRow } from './disk-store.ts';
import type { NewDiskRow } from './disk-tables.ts';
import { addressOf, type DiskIdentity, type DiskWork } from './disk-work.ts';
import { enterDiskStep } from './steps.ts';

export interface NewDisk {
  /** From `newDiskId()`. */
  id: string;
  owner: Owner;
}

export interface DiskContent {
  format: DiskFormat;
  content: Readable;
  deadlineMs: number;
  signal: AbortSignal;
}

export class Disks {
  readonly #work: DiskWork;
  readonly #store: DiskStore;

  constructor(work: DiskWork) {
    this.#work = work;
    this.#store = work.store;
  }

  /** Creates an empty disk, and resolves when a sandbox can attach it. */
  create({ id, owner }: NewDisk, { name, size_gb, durability }: CreateDiskRequest): Promise<DiskRecord> {
    const row = this.#buildRow({ id, owner }, { name, size_gb, durability });
    const sizeBytes = size_gb * DISK_GB_BYTES;
    return this.#make(row, () =>
      this.#ask(row, (runner, address, leftMs) => runner.create(address, sizeBytes, leftMs)),
    );
  }

  /** Makes a disk from a disk image, and rounds its size up to whole GB. */
  import({ id, owner }: NewDisk, name: string, image: DiskContent): Promise<DiskRecord> {
    const row = this.#buildRow({ id, owner }, { name, size_gb: 1, durability: 'local' });
    return this.#make(row, async () => {
      const state = await this.#importWithin(row, image);
      const sizeGb = Math.ceil(state.size_bytes / DISK_GB_BYTES);
      const wholeBytes = sizeGb * DISK_GB_BYTES;
      // Other disks may have been made since.
      await this.#store.alone(owner.organizationId, async (store) => {
        await this.#checkQuota(store, owner.organizationId, { disks: 0, gb: sizeGb - row.size_gb });
        await store.setNewSize(id, sizeGb);
      });
      return wholeBytes === state.size_bytes
        ? state
        : await this.#ask(row, (runner, address, leftMs) => runner.grow(address, wholeBytes, leftMs));
    });
  }

  /** Returns an answer of the runner with the content of a version as its stream. */
  async export(
    reach: Reach,
    name: string,
    what: { snapshot?: string | undefined; format: DiskFormat },
  ): Promise<RunnerAnswer> {
    const row = await this.#get(reach, name);
    const address = addressOf(row);
    const runner = await this.#work.runnerOf(address);
    const version =
      what.snapshot === undefined
        ? (await runner.get(address)).version
        : await this.#getVersion(row, what.snapshot);
    return runner.export(address, version, what.format);
  }

  /** Makes a disk from a snapshot of another one, whatever its size, in milliseconds. */
  async fork(
    { id, owner }: NewDisk,
    { reach, source, request }: { reach: Reach; source: string; request: ForkDiskRequest },
  ): Promise<DiskRecord> {
    const parent = await this.#get(reach, source);
    const snapshot = await this.#work.snapshots.find(parent.id, request.snapshot);
    if (snapshot?.status !== 'ready' || snapshot.version === null)
      throw noSnapshot(source, request.snapshot, 'snapshot');
    const { version } = snapshot;
    await this.#work.assertHere(parent);
    const row = {
      ...this.#buildRow(
        { id, owner },
        { ...request, size_gb: snapshot.size_gb, durability: parent.durability },
      ),
      parent_id: parent.id,
      parent_version: version,
    };
    return this.#make(row, () =>
      this.#ask(parent, (runner, address, leftMs) => runner.fork(address, { version, to: id }, leftMs)),
    );
  }

  /** Returns a disk, with what the runner knows of it now, or, without an answer, as it was last seen. */
  async get(reach: Reach, name: string): Promise<DiskRecord> {
    const row = await this.#get(reach, name);
    try {
      const address = addressOf(row);
      await this.#store.noteState(row.id, await (await this.#work.runnerOf(address)).get(address));
    } catch (error) {
      this.#work.parts.log.debug({ err: error, disk_id: row.id }, 'a disk is shown as it was last seen');
      return buildDiskRecord(row);
    }
    return this.#show(row.id, name);
  }

  async list(filter: DiskFilter): Promise<{ records: DiskRecord[]; createdAt: number[]; ids: string[] }> {
    const rows = await this.#store.list(filter);
    return {
      records: rows.map(buildDiskRecord),
      createdAt: rows.map((row) => row.created_at),
      ids: rows.map((row) => row.id),
    };
  }

  /** Returns the state of a disk that is being made, for its Idempotency-Key. */
  async findSubject(id: string): Promise<Subject<DiskRecord>> {
    const row = await this.#store.findById(id);
    if (row === undefined || row.status === 'deleting') return 'nothing';
    return row.status === 'ready' ? { status: 201, body: buildDiskRecord(row) } : 'begun';
  }

  /** Changes the size. Resolves when the disk has it. */
  async patch(reach: Reach, name: string, { size_gb }: PatchDiskRequest): Promise<DiskRecord> {
    const row = await this.#get(reach, name);
    if (size_gb !== undefined && size_gb !== row.size_gb) await this.#grow(row, size_gb);
    return this.#show(row.id, name);
  }

  /** Resolves when everything that was written before is in the object store. */
  async flush(reach: Reach, name: string): Promise<DiskRecord> {
    const row = await this.#get(reach, name);
    const state = await this.#ask(row, (runner, address, leftMs) => runner.flush(address, leftMs));
    await this.#store.noteState(row.id, state);
    return this.#show(row.id, name);
  }

  /**
   * Deletes a disk with its snapshots. No caller sees it when this resolves, although its space is freed later. Throws
   * `disk_in_use` or `disk_has_forks`.
   */
  async delete(reach: Reach, name: string): Promise<void> {
    const { id, organization_id } = await this.#get(reach, name);
    await this.#work.underWay.run(id, async () => {
      await this.#work.assertHere({ id, organization_id });
      const row = await this.#condemn(reach, name);
      try {
        await this.#work.erase(row);
      } catch (error) {
        if (!(await this.#isRefused(row, error))) {
          this.#work.parts.log.warn({ err: error, disk_id: row.id }, 'a disk is left to the keeper');
          return;
        }
        await this.#store.revive(row.id);
        throw error;
      }
    });
  }

  /** Grows a disk whose growth was interrupted. */
  async resolveGrowth(row: Pick<NamedDiskRow, 'id' | 'organization_id' | 'growing_to_gb'>): Promise<void> {
    const { id, growing_to_gb: sizeGb } = row;
    if (sizeGb === null) return;
    const state = await this.#askToGrow(row, sizeGb);
    await enterDiskStep('disk.grown');
    await this.#store.completeGrowth(id, sizeGb, state);
  }

  /** Throws the runner's refusal after removing the growth from the record. Without an answer it stays there. */
  async #askToGrow(row: Pick<NamedDiskRow, 'id' | 'organization_id'>, sizeGb: number): Promise<DiskState> {
    try {
      return await this.#ask(row, (runner, address, leftMs) =>
        runner.grow(address, sizeGb * DISK_GB_BYTES, leftMs),
      );
    } catch (error) {
      if (!isUnanswered(error)) await this.#store.forgetGrowth(row.id);
      throw error;
    }
  }

  async #grow({ id, name, organization_id, size_gb }: NamedDiskRow, sizeGb: number): Promise<void> {
    if (sizeGb < size_gb)
      throw new AppError('invalid_request', `size_gb: the disk has ${size_gb} GB, and can only grow`);
    await this.#work.underWay.run(id, async () => {
      await this.#work.assertHere({ id, organization_id });
      await this.#store.alone(organization_id, async (store) => {
        // The forks would have a size that is not in their records.
        if (await store.isBeingForked(id)) throw isForking(name);
        // Of an interrupted growth, which the runner may have done.
        if (((await store.findById(id))?.growing_to_gb ?? 0) > sizeGb) throw isGrowing(name);
        await this.#checkQuota(store, organization_id, { disks: 0, gb: sizeGb - size_gb });
        await store.setGrowing(id, sizeGb, this.#work.control);
      });
      await enterDiskStep('disk.grow');
      await this.resolveGrowth({ id, organization_id, growing_to_gb: sizeGb });
    });
  }

  /** Repeats a request about a disk that gets no answer. */
  #ask(
    disk: DiskIdentity,
    ask: (runner: RunnerDisks, address: DiskAddress, leftMs: number) => Promise<DiskState>,
  ): Promise<DiskState> {
    const address = addressOf(disk);
    return this.#work.insist(async (leftMs) => ask(await this.#work.runnerOf(address), address, leftMs));
  }

  /** Makes a disk at the runner that is no larger than the organization may have. */
  async #importWithin(row: NewDiskRow, image: DiskContent): Promise<DiskState> {
    const limits = this.#work.parts.limitsOf(row.organization_id);
    const maxGb = findImportLimit(limits, await this.#store.sum(row.organization_id), row.size_gb);
    try {
      const address = addressOf(row);
      const runner = await this.#work.runnerOf(address);
      return await runner.import(address, { ...image, maxBytes: maxGb * DISK_GB_BYTES });
    } catch (error) {
      const isTooLarge = error instanceof AppError && error.code === 'payload_too_large';
      throw isTooLarge ? imageTooLarge(limits, maxGb, error) : error;
    }
  }

  /** Inserts the row, has the runner make the disk, and completes the row; or leaves nothing. */
  #make(row: NewDiskRow, ask: () => Promise<DiskState>): Promise<DiskRecord> {
    const { id, name, organization_id } = row;
    return this.#work.underWay.run(id, async () => {
      await this.#work.assertHere(row);
      await this.#store.alone(organization_id, async (store) => {
        await assertParent(store, row);
        if ((await store.listNames(organization_id)).has(name)) throw nameTaken(name);
        await this.#checkQuota(store, organization_id, { disks: 1, gb: row.size_gb });
        await store.insert([row]);
      });
      try {
        await enterDiskStep('disk.make');
        const state = await ask();
        await enterDiskStep('disk.made');
        const sizeGb = state.size_bytes / DISK_GB_BYTES;
        if (await this.#store.complete(id, { sizeGb }, state)) return await this.#show(id, name);
        throw new AppError('internal', 'the record of a disk is gone');
      } catch (error) {
        // Also if it was completed and the answer was lost: the caller gets an error.
        await this.#work.eraseOrLeave(row, ['creating', 'ready']);
        throw takenBack(error, 'the disk');
      }
    });
  }

  async #condemn(reach: Reach, name: string): Promise<NamedDiskRow> {
    return this.#store.alone(reach.organizationId, async (store) => {
      const row = await store.find(reach, name);
      if (row === undefined) throw noDisk(name);
      if (row.sandbox_id !== null) throw inUse(row);
      const forks = await store.listForks(row.id);
      if (forks.length > 0) throw hasForks(name, forks);
      await store.condemn(row.id, ['ready'], { now: this.#work.nowMs, control: this.#work.control });
      return row;
    });
  }

  /** Returns whether the runner refuses to remove a disk for a reason that its record does not show. */
  async #isRefused(row: NamedDiskRow, error: unknown): Promise<boolean> {
    if (!(error instanceof AppError)) return false;
    if (error.code === 'disk_in_use') return true;
    // Forks that are being removed do not count: the keeper removes them first, and then this one.
    return error.code === 'disk_has_forks' && (await this.#store.listForks(row.id, 'deleting')).length === 0;
  }

  async #get(reach: Reach, name: string): Promise<NamedDiskRow> {
    const row = await this.#store.find(reach, name);
    if (row === undefined) throw noDisk(name);
    return row;
  }

  async #getVersion(disk: NamedDiskRow, name: string): Promise<number> {
    const snapshot = await this.#work.snapshots.find(disk.id, name);
    if (snapshot?.status !== 'ready' || snapshot.version === null)
      throw noSnapshot(disk.name, name, 'snapshot');
    return snapshot.version;
  }

  async #show(id: string, name: string): Promise<DiskRecord> {
    const row = await this.#store.findById(id);
    if (row?.status !== 'ready') throw noDisk(name);
    return buildDiskRecord(row);
  }

  async #checkQuota(
    store: DiskStore,
    organizationId: string,
    more: { disks: number; gb: number },
  ): Promise<void> {
    checkDiskQuota(this.#work.parts.limitsOf(organizationId), await store.sum(organizationId), more);
  }

  #buildRow(
    { id, owner }: NewDisk,
    { name, size_gb, durability }: Pick<NewDiskRow, 'name' | 'size_gb' | 'durability'>,
  ): NewDiskRow {
    const now = this.#work.nowMs;
    return {
      id,
      organization_id: owner.organizationId,
      team_id: owner.teamId,
      name,
      status: 'creating',
      size_gb,
      durability,
      stored_at: now,
      created_at: now,
      control_id: this.#work.control,
    };
  }
}

/** The parent of a fork may have been deleted since it was found. */
async function assertParent(store: DiskStore, { parent_id: id }: NewDiskRow): Promise<void> {
  if (id === undefined || id === null) return;
  const parent = await store.findById(id);
  if (parent?.status !== 'ready') throw noDisk(parent?.name ?? '');
}
