/** Builds the records of disks and their snapshots that callers receive. Pure. */
import type { DiskRecord, DiskSnapshotRecord } from '@coppice/contract';
import type { NamedDiskRow } from './disk-store.ts';
import type { DiskSnapshotRow } from './disk-tables.ts';
import { invariant } from '../../lib/invariant.ts';

export function buildDiskRecord(row: NamedDiskRow): DiskRecord {
  return {
    name: row.name,
    team_id: row.team_id,
    status: showStatus(row),
    size_gb: row.size_gb,
    stored_bytes: row.stored_bytes,
    attached_to: row.sandbox_id,
    parent: row.parent_name,
    durability: row.durability,
    drained_version: row.version,
    dirty_bytes: row.dirty_bytes,
    drained_at: toTimestamp(row.drained_at),
    waits_for: row.waits_for,
    created_at: toTimestamp(row.created_at),
  };
}

export function buildDiskSnapshotRecord(disk: string, row: DiskSnapshotRow): DiskSnapshotRecord {
  invariant(row.version !== null, 'a snapshot that is ready has a version');
  return {
    name: row.name,
    disk,
    size_gb: row.size_gb,
    version: row.version,
    created_at: toTimestamp(row.created_at),
  };
}

function showStatus({ attachment }: NamedDiskRow): DiskRecord['status'] {
  if (attachment === null) return 'available';
  return attachment === 'detaching' ? 'detaching' : 'attached';
}

function toTimestamp(unixMs: number): string {
  return new Date(unixMs).toISOString();
}
