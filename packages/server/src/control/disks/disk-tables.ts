/** Tables of persistent disks. Times are Unix milliseconds. */
import type { DiskDurabilityName } from '@coppice/contract';
import type { Generated, Insertable, Selectable } from 'kysely';

export interface DiskTable {
  id: string;
  organization_id: string;
  /** Team of the API key that created it. */
  team_id: string;
  name: string;
  /** Callers see only `ready` disks; the others are being made or removed. */
  status: 'creating' | 'ready' | 'deleting';
  size_gb: number;
  /** The size to which it is being grown; null otherwise. */
  growing_to_gb: Generated<number | null>;
  durability: DiskDurabilityName;
  /** The sandbox that holds it; null if it is free. */
  sandbox_id: Generated<string | null>;
  /** `attaching`: a hibernated sandbox is being resumed. `detaching`: the runner may still be storing what was written. */
  attachment: Generated<'attaching' | 'attached' | 'detaching' | null>;
  /** The disk from which it was forked, and the version of that disk. */
  parent_id: Generated<string | null>;
  parent_version: Generated<number | null>;
  /** This and the three fields below: the state at the runner, as last seen. */
  version: Generated<number>;
  drained_at: Generated<number>;
  dirty_bytes: Generated<number>;
  waits_for: Generated<string | null>;
  /** Bytes in the object store, when they were measured, and the version that was measured; null: measure it now. */
  stored_bytes: Generated<number>;
  stored_at: number;
  stored_version: Generated<number | null>;
  created_at: number;
  /** The control that makes, grows or removes it, or has done so last; null for none. */
  control_id: Generated<string | null>;
}

export interface DiskSnapshotTable {
  id: string;
  organization_id: string;
  disk_id: string;
  name: string;
  /** Callers see only `ready` snapshots. */
  status: 'creating' | 'ready' | 'deleting';
  /** Null until the runner has answered. */
  version: Generated<number | null>;
  size_gb: number;
  created_at: number;
  /** As of a disk. */
  control_id: Generated<string | null>;
}

export type DiskRow = Selectable<DiskTable>;
export type NewDiskRow = Insertable<DiskTable>;
export type DiskSnapshotRow = Selectable<DiskSnapshotTable>;
