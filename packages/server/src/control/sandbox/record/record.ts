/** Builds the record that callers receive from a sandbox's row. */
import {
  costCents,
  type DestroyResult,
  type SandboxDisk,
  type SandboxOperation,
  type SandboxRecord,
  type SandboxState,
} from '@coppice/contract';
import type { Detaching } from '../../disks/detachments.ts';
import { findSettledAgeMs } from '../../time/lifetime.ts';
import { toTimestamp } from '../../time/timestamp.ts';
import type { SandboxRow } from './sandbox-tables.ts';

/** Columns that a record is built from. Without `network`, as a list could hold hundreds of thousands of rules. */
export const RECORD_COLUMNS = [
  'id',
  'status',
  'status_reason',
  'name',
  'image',
  'team_id',
  'region',
  'vcpus',
  'mem_mib',
  'disk_mib',
  'timeout_s',
  'max_lifetime_s',
  'ends_at',
  'labels',
  'parent_id',
  'audit_key_id',
  'create_ms',
  'created_at',
  'hibernated_at',
  'billed_ms',
  'hibernated_ms',
  'ended_at',
  'auto_hibernate',
  'cwd',
  'disk_name',
  'disk_recovered_version',
  'disk_recovered_at',
] as const satisfies (keyof SandboxRow)[];
export type RecordRow = Pick<SandboxRow, (typeof RECORD_COLUMNS)[number]>;

/** State that the driver knows best; others have it from SQL: stored-state.ts. */
export interface LiveState {
  operation: SandboxOperation | null;
  /** Unix milliseconds. */
  expiresAt: number | null;
}

const NOT_LIVE: LiveState = { operation: null, expiresAt: null };

/** `detaching`: what is known of the disk while it is not free yet, although the sandbox no longer uses it. */
export function buildRecord(
  row: RecordRow,
  { detaching, ...live }: LiveState & { detaching?: Detaching | undefined } = NOT_LIVE,
): SandboxRecord {
  return {
    id: row.id,
    status: row.status,
    status_reason: row.status_reason,
    operation: live.operation,
    name: row.name,
    team_id: row.team_id,
    image: row.image,
    region: row.region,
    vcpus: row.vcpus,
    mem_mib: row.mem_mib,
    disk_mib: row.disk_mib,
    timeout: row.timeout_s,
    max_lifetime: row.max_lifetime_s,
    ends_at: toTimestamp(row.ends_at),
    expires_at: toTimestamp(live.expiresAt),
    auto_hibernate: row.auto_hibernate,
    cwd: row.cwd,
    disk: buildDisk(row, detaching),
    labels: row.labels,
    parent_id: row.parent_id,
    audit_key_id: row.audit_key_id,
    create_ms: row.create_ms,
    created_at: new Date(row.created_at).toISOString(),
    hibernated_at: toTimestamp(row.hibernated_at),
    billed_ms: row.billed_ms,
    running_since: toTimestamp(findRunningSince(row)),
    ended_at: toTimestamp(row.ended_at),
  };
}

/** Returns the start of the present stretch of running, in Unix milliseconds as stretch.ts places it; null without one. */
function findRunningSince(row: RecordRow): number | null {
  return row.status === 'running' ? row.created_at + findSettledAgeMs(row) : null;
}

export function buildDestroyResult(row: SandboxRow, detaching?: Detaching): DestroyResult {
  const disk = buildDisk(row, detaching);
  return {
    ...(disk === null ? {} : { disk }),
    status: 'destroyed',
    cpu_ms: row.cpu_ms,
    mem_peak_bytes: row.mem_peak_bytes,
    uptime_ms: row.uptime_ms,
    cost_cents: costCents(BigInt(row.cost_units)),
  };
}

export function isUsingDisk(status: SandboxState): boolean {
  return status === 'creating' || status === 'running';
}

function buildDisk(
  row: Pick<RecordRow, 'status' | 'disk_name' | 'disk_recovered_version' | 'disk_recovered_at'>,
  detaching: Detaching | undefined,
): SandboxDisk | null {
  const { status, disk_name: name, disk_recovered_version: version, disk_recovered_at: recoveredAt } = row;
  if (name === null) return null;
  const hasIt = isUsingDisk(status);
  const unused = detaching === undefined ? 'detached' : 'detaching';
  return {
    name,
    status: hasIt ? 'attached' : unused,
    dirty_bytes: hasIt ? null : (detaching?.dirtyBytes ?? null),
    waits_for: hasIt ? null : (detaching?.waitsFor ?? null),
    recovered:
      version === null || recoveredAt === null
        ? null
        : { version, drained_at: new Date(recoveredAt).toISOString() },
  };
}
