/** Columns of a sandbox's row in memory: all but the variables of its processes, which environments.ts reads by id. */
import { sql } from 'kysely';
import { RECORD_COLUMNS } from './record.ts';
import type { SandboxRow } from './sandbox-tables.ts';

const COLUMNS = [
  ...RECORD_COLUMNS,
  'organization_id',
  'version',
  'runner_id',
  'origin',
  'hibernation_id',
  'is_resuming',
  'rollback_id',
  'rollback_snapshot_id',
  'last_active_at',
  'last_seen_at',
  'boot_id',
  'created_boot_ms',
  'last_seen_boot_ms',
  'cpu_ms',
  'mem_peak_bytes',
  'uptime_ms',
  'cost_units',
  'audit_stored_at',
  'network',
  'disk_id',
  'disk_version',
  'rollback_disk_version',
] as const satisfies (keyof SandboxRow)[];

export const ROW_COLUMNS = [...COLUMNS, sql<boolean>`(sealed_env IS NOT NULL)`.as('has_env')] as const;
