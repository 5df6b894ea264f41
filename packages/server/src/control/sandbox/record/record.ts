/** Builds the record that callers receive from a sandbox's row. */
import { costCents, type DestroyResult, type SandboxOperation, type SandboxRecord } from '@coppice/contract';
import type { SandboxRow } from './sandbox-tables.ts';

/** Columns that a record is built from. Without `network`, as a list could hold hundreds of thousands of rules. */
export const RECORD_COLUMNS = [
  'id',
  'status',
  'status_reason',
  'image',
  'team_id',
  'region',
  'vcpus',
  'mem_mib',
  'disk_mib',
  'timeout_s',
  'max_lifetime_s',
  'labels',
  'parent_id',
  'audit_key_id',
  'create_ms',
  'created_at',
  'hibernated_at',
  'ended_at',
  'auto_hibernate',
] as const satisfies (keyof SandboxRow)[];
export type RecordRow = Pick<SandboxRow, (typeof RECORD_COLUMNS)[number]>;

/** State that only the driver knows. */
export interface LiveState {
  operation: SandboxOperation | null;
  /** Unix milliseconds. */
  expiresAt: number | null;
}

const NOT_LIVE: LiveState = { operation: null, expiresAt: null };

export function buildRecord(row: RecordRow, live: LiveState = NOT_LIVE): SandboxRecord {
  return {
    id: row.id,
    status: row.status,
    status_reason: row.status_reason,
    operation: live.operation,
    team_id: row.team_id,
    image: row.image,
    region: row.region,
    vcpus: row.vcpus,
    mem_mib: row.mem_mib,
    disk_mib: row.disk_mib,
    timeout: row.timeout_s,
    max_lifetime: row.max_lifetime_s,
    expires_at: toTimestamp(live.expiresAt),
    auto_hibernate: row.auto_hibernate,
    labels: row.labels,
    parent_id: row.parent_id,
    audit_key_id: row.audit_key_id,
    create_ms: row.create_ms,
    created_at: new Date(row.created_at).toISOString(),
    hibernated_at: toTimestamp(row.hibernated_at),
    ended_at: toTimestamp(row.ended_at),
  };
}

export function buildDestroyResult(row: SandboxRow): DestroyResult {
  return {
    status: 'destroyed',
    cpu_ms: row.cpu_ms,
    mem_peak_bytes: row.mem_peak_bytes,
    uptime_ms: row.uptime_ms,
    cost_cents: costCents(BigInt(row.cost_units)),
  };
}

function toTimestamp(unixMs: number | null): string | null {
  return unixMs === null ? null : new Date(unixMs).toISOString();
}
