/** Shared by all operations on disks: the parts, the deadlines of the runner, and the removal of a disk. */
import type { Logger } from 'pino';
import type { AuditLog } from '../audit/audit-log.ts';
import type { ControlLimits } from '../control-config.ts';
import type { Database } from '../db/database.ts';
import type { LimitsOf } from '../limits/organization-limits.ts';
import type { Ownership } from '../ownership/ownership.ts';
import { insist } from '../placement/insist.ts';
import type { DiskAddress, RunnerDisks } from '../placement/runner-disks.ts';
import type { Runners } from '../runners/runners.ts';
import type { Clock } from '../time/clock.ts';
import { DiskSnapshotStore } from './disk-snapshot-store.ts';
import { DiskStore } from './disk-store.ts';
import type { DiskRow } from './disk-tables.ts';
import { findHolderRunner } from './held-disk.ts';
import { enterDiskStep } from './steps.ts';
import { UnderWay } from './under-way.ts';

export interface DiskWorkParts {
  db: Database;
  runners: Pick<Runners, 'any' | 'get'>;
  ownership: Ownership;
  audit: Pick<AuditLog, 'commit'>;
  clock: Clock;
  limits: Pick<ControlLimits, 'captureDeadlineMs' | 'runnerOutageDeadlineMs'>;
  limitsOf: LimitsOf;
  log: Logger;
}

export class DiskWork {
  readonly parts: DiskWorkParts;
  readonly store: DiskStore;
  readonly snapshots: DiskSnapshotStore;
  readonly underWay = new UnderWay();
  /** Organizations with objects that no disk refers to any more. */
  readonly withGarbage = new Set<string>();

  constructor(parts: DiskWorkParts) {
    this.parts = parts;
    this.store = new DiskStore(parts.db);
    this.snapshots = new DiskSnapshotStore(parts.db);
  }

  /** Returns the runner that holds the disk for a sandbox, else any: all of them reach the object store. */
  async runnerOf({ disk }: Pick<DiskAddress, 'disk'>): Promise<RunnerDisks> {
    const { db, runners } = this.parts;
    const holder = await findHolderRunner(db, disk);
    return (holder === undefined ? runners.any() : runners.get(holder)).client.disks;
  }

  /** Call before anything is written: throws an ElsewhereError if another control has the runner for it. */
  async assertHere(disk: DiskIdentity): Promise<void> {
    await this.runnerOf(addressOf(disk));
  }

  /** Id of this control. */
  get control(): string {
    return this.parts.ownership.id;
  }

  get nowMs(): number {
    return this.parts.clock.wallMs();
  }

  /** Repeats a request to the runner that gets no answer. */
  insist<T>(attempt: (leftMs: number) => Promise<T>): Promise<T> {
    const { captureDeadlineMs: deadlineMs, runnerOutageDeadlineMs: outageDeadlineMs } = this.parts.limits;
    const onRepeat = (): void =>
      this.parts.log.warn('the runner gave no answer about a disk; control asks again');
    return insist({ deadlineMs, outageDeadlineMs, onRepeat }, attempt);
  }

  /** Erases a disk. Does not throw, as the decision is made: the keeper removes what is left. */
  async eraseOrLeave(disk: DiskIdentity, from: readonly DiskRow['status'][]): Promise<void> {
    try {
      if (await this.store.condemn(disk.id, from, { now: this.nowMs, control: this.control }))
        await this.erase(disk);
    } catch (error) {
      this.parts.log.warn({ err: error, disk_id: disk.id }, 'a disk is left to the keeper');
    }
  }

  /** Removes a condemned disk. */
  async erase(disk: DiskIdentity): Promise<void> {
    await enterDiskStep('disk.erase');
    const address = addressOf(disk);
    await (await this.runnerOf(address)).remove(address);
    await enterDiskStep('disk.erased');
    await this.store.remove(disk.id);
    this.withGarbage.add(disk.organization_id);
  }
}

export type DiskIdentity = Pick<DiskRow, 'id' | 'organization_id'>;

export function addressOf({ id, organization_id }: DiskIdentity): DiskAddress {
  return { organization: organization_id, disk: id };
}
