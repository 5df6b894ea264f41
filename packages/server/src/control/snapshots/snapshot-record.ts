/** Builds the row of a new snapshot, and the record that callers receive. Pure. */
import {
  DISK_GB_BYTES,
  MAX_SNAPSHOT_AHEAD_MS,
  type CreateSnapshotRequest,
  type SnapshotRecord,
} from '@coppice/contract';
import type { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import { checkExpiry } from '../time/expiry.ts';
import { toTimestamp } from '../time/timestamp.ts';
import type { NewSnapshotRow, SnapshotRow } from './snapshot-tables.ts';

/** Throws `invalid_request` for an expiry that has passed. */
export function buildSnapshotRow(
  id: string,
  sandbox: Readonly<SandboxRow>,
  { request, now, sealedEnv }: { request: CreateSnapshotRequest; now: number; sealedEnv: Buffer | null },
): NewSnapshotRow {
  return {
    id,
    organization_id: sandbox.organization_id,
    status: 'creating' as const,
    run_id: sandbox.id,
    runner_id: sandbox.runner_id,
    name: request.name ?? null,
    image: sandbox.image,
    vcpus: sandbox.vcpus,
    mem_mib: sandbox.mem_mib,
    disk_mib: sandbox.disk_mib,
    size_bytes: 0,
    bound_to: '{}',
    created_at: now,
    expires_at: findExpiry(request, now),
    timeout_s: sandbox.timeout_s,
    max_lifetime_s: sandbox.max_lifetime_s,
    labels: JSON.stringify(sandbox.labels),
    auto_hibernate: sandbox.auto_hibernate,
    network: sandbox.network,
    sealed_env: sealedEnv,
    cwd: sandbox.cwd,
    disk_id: sandbox.disk_id,
    disk_name: sandbox.disk_name,
  };
}

export function buildSnapshotRecord(row: SnapshotRow): SnapshotRecord {
  return {
    id: row.id,
    run_id: row.run_id,
    name: row.name,
    image: row.image,
    vcpus: row.vcpus,
    mem_mib: row.mem_mib,
    disk_mib: row.disk_mib,
    disk: buildDisk(row),
    size_bytes: row.size_bytes,
    bound_to: row.bound_to,
    created_at: new Date(row.created_at).toISOString(),
    expires_at: toTimestamp(row.expires_at),
  };
}

/** Returns the version of the sandbox's disk in a capture, and its size. */
export function readSavedDisk({ workspace }: CaptureInfo): { version: number; gb: number } | undefined {
  return workspace && { version: workspace.version, gb: Math.ceil(workspace.size_bytes / DISK_GB_BYTES) };
}

function findExpiry({ expires_in, expires_at }: CreateSnapshotRequest, now: number): number | null {
  if (expires_in !== undefined) return now + expires_in * 1000;
  return checkExpiry(expires_at ?? null, { wallMs: now, maxAheadMs: MAX_SNAPSHOT_AHEAD_MS });
}

function buildDisk({ disk_name: name, disk_version: version, disk_gb }: SnapshotRow): SnapshotRecord['disk'] {
  return name === null || version === null || disk_gb === null ? null : { name, version, size_gb: disk_gb };
}
