/**
 * Snapshots of disks: a row in SQL, and a version that the runner keeps. Made and removed in the order of disks.ts. The
 * runner takes one snapshot for each id, so that a repeated request finds the version.
 */
import {
  AppError,
  DISK_GB_BYTES,
  type CreateDiskSnapshotRequest,
  type DiskSnapshotRecord,
} from '@coppice/contract';
import type { DiskVersion } from '../../lib/protocol/disk-protocol.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import { takenBack } from '../placement/runner-error.ts';
import type { Subject } from '../sandbox/idempotency.ts';
import { noDisk, noSnapshot } from './disk-errors.ts';
import { buildDiskSnapshotRecord } from './disk-record.ts';
import type { NamedDiskRow } from './disk-store.ts';
import type { DiskSnapshotRow } from './disk-tables.ts';
import { addressOf, type DiskWork } from './disk-work.ts';
import { enterDiskStep } from './steps.ts';

/** Limit of one disk, so that a list of its snapshots stays short. */
const MAX_SNAPSHOTS = 1000;

export class DiskSnapshots {
  readonly #work: DiskWork;

  constructor(work: DiskWork) {
    this.#work = work;
  }

  /** Takes a snapshot of a disk as it is now. `id` is from `newDiskSnapshotId()`. */
  async create(
    reach: Reach,
    { id, disk: diskName, request }: { id: string; disk: string; request: CreateDiskSnapshotRequest },
  ): Promise<DiskSnapshotRecord> {
    const disk = await this.#getDisk(reach, diskName);
    return this.#work.underWay.run(id, async () => {
      await this.#work.assertHere(disk);
      await this.#begin(disk, { id, name: request.name });
      try {
        await enterDiskStep('disk.snapshot');
        const taken = await this.#take(disk, { id, sync: request.sync });
        await enterDiskStep('disk.saved');
        const row = await this.#complete(disk, { id, name: request.name }, taken);
        return buildDiskSnapshotRecord(disk.name, row);
      } catch (error) {
        await this.#eraseOrLeave(id, ['creating', 'ready']);
        throw takenBack(error, 'the snapshot');
      }
    });
  }

  async list(
    reach: Reach,
    diskName: string,
    page: { limit: number; after?: { createdAt: number; id: string } },
  ): Promise<{ records: DiskSnapshotRecord[]; createdAt: number[]; ids: string[] }> {
    const disk = await this.#getDisk(reach, diskName);
    const rows = await this.#work.snapshots.list(disk.id, page);
    return {
      records: rows.map((row) => buildDiskSnapshotRecord(disk.name, row)),
      createdAt: rows.map((row) => row.created_at),
      ids: rows.map((row) => row.id),
    };
  }

  /** Returns the state of a snapshot that is being taken, for its Idempotency-Key. */
  async findSubject(id: string, diskName: string): Promise<Subject<DiskSnapshotRecord>> {
    const row = await this.#work.snapshots.findById(id);
    if (row === undefined || row.status === 'deleting') return 'nothing';
    return row.status === 'ready' ? { status: 201, body: buildDiskSnapshotRecord(diskName, row) } : 'begun';
  }

  /** Deletes a snapshot. Disks that were forked from it are not affected. */
  async delete(reach: Reach, diskName: string, name: string): Promise<void> {
    const disk = await this.#getDisk(reach, diskName);
    const row = await this.#work.snapshots.find(disk.id, name);
    if (row?.status !== 'ready') throw noSnapshot(diskName, name);
    await this.#work.assertHere(disk);
    await this.#work.underWay.run(row.id, () => this.#eraseOrLeave(row.id, ['ready']));
  }

  /** Removes snapshots that an earlier process left unfinished. */
  async resolveInterrupted(): Promise<void> {
    for (const { id } of await this.#work.snapshots.listUnsettled(this.#work.parts.ownership)) {
      if (this.#work.underWay.has(id)) continue;
      await this.#work.underWay.run(id, () => this.#eraseOrLeave(id, ['creating', 'deleting']));
    }
  }

  async #begin(disk: NamedDiskRow, { id, name }: { id: string; name: string }): Promise<void> {
    await this.#work.store.alone(disk.organization_id, async (store, transaction) => {
      const snapshots = this.#work.snapshots.within(transaction);
      if ((await store.findById(disk.id))?.status !== 'ready') throw noDisk(disk.name);
      if ((await snapshots.find(disk.id, name)) !== undefined)
        throw new AppError('already_exists', `name: the disk has a snapshot ${JSON.stringify(name)} already`);
      if ((await snapshots.list(disk.id, { limit: MAX_SNAPSHOTS })).length >= MAX_SNAPSHOTS)
        throw new AppError(
          'capacity',
          `the disk has ${MAX_SNAPSHOTS} snapshots, which is the limit; delete some`,
        );
      await snapshots.insert({
        id,
        organization_id: disk.organization_id,
        disk_id: disk.id,
        name,
        status: 'creating',
        version: null,
        size_gb: disk.size_gb,
        created_at: this.#work.nowMs,
        control_id: this.#work.control,
      });
    });
  }

  #take(
    disk: Pick<NamedDiskRow, 'id' | 'organization_id'>,
    { id, sync }: { id: string; sync: boolean },
  ): Promise<DiskVersion> {
    const address = addressOf(disk);
    return this.#work.insist(async (leftMs) =>
      (await this.#work.runnerOf(address)).snapshot(address, { snapshot: id, sync }, leftMs),
    );
  }

  /** Commits the snapshot, with an entry in the audit log of the sandbox that has the disk. */
  async #complete(
    disk: NamedDiskRow,
    { id, name }: { id: string; name: string },
    { version, size_bytes, created_at }: DiskVersion,
  ): Promise<DiskSnapshotRow> {
    const taken = { version, size_gb: size_bytes / DISK_GB_BYTES, created_at: Date.parse(created_at) };
    const complete = async (snapshots: DiskWork['snapshots']): Promise<DiskSnapshotRow> => {
      const row = await snapshots.complete(id, taken);
      if (row === undefined) throw noDisk(disk.name);
      return row;
    };
    const { sandbox_id: sandboxId, attachment } = disk;
    if (sandboxId === null || attachment !== 'attached') return complete(this.#work.snapshots);
    const note = { event: 'disk.snapshot', data: { disk: disk.name, snapshot: name, version } } as const;
    try {
      return await this.#work.parts.audit.commit(sandboxId, note, (transaction) =>
        complete(this.#work.snapshots.within(transaction)),
      );
    } catch (error) {
      // The sandbox has ended meanwhile: its log is closed.
      if (error instanceof AppError && error.code === 'invalid_state') return complete(this.#work.snapshots);
      throw error;
    }
  }

  async #eraseOrLeave(id: string, from: readonly DiskSnapshotRow['status'][]): Promise<void> {
    try {
      const row = await this.#work.snapshots.condemn(id, from, this.#work.control);
      if (row !== undefined) await this.#erase(row);
    } catch (error) {
      this.#work.parts.log.warn(
        { err: error, snapshot_id: id },
        'a snapshot of a disk is left to the keeper',
      );
    }
  }

  async #erase(row: DiskSnapshotRow): Promise<void> {
    const disk = { id: row.disk_id, organization_id: row.organization_id };
    const version = row.version ?? (await this.#findVersion(disk, row.id));
    const address = addressOf(disk);
    if (version !== undefined) await (await this.#work.runnerOf(address)).removeSnapshot(address, version);
    await this.#work.snapshots.remove(row.id);
    await this.#work.store.noteDataChanged(disk.id);
  }

  /** Finds the version of a snapshot whose answer was lost. If none was taken, this takes one, which is removed then. */
  async #findVersion(
    disk: Pick<NamedDiskRow, 'id' | 'organization_id'>,
    id: string,
  ): Promise<number | undefined> {
    try {
      return (await this.#take(disk, { id, sync: false })).version;
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') return undefined;
      throw error;
    }
  }

  async #getDisk(reach: Reach, name: string): Promise<NamedDiskRow> {
    const disk = await this.#work.store.find(reach, name);
    if (disk === undefined) throw noDisk(name);
    return disk;
  }
}
