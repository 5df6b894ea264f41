import type { SandboxState, StatusReason } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { SandboxRow, SandboxUpdate } from '../sandbox/record/sandbox-tables.ts';

const CREATED_AT = 1_700_000_000_000;

/** The row of a running sandbox, created and last seen at 1 700 000 000 000, 1000 s after the boot `this`. */
export function buildSandboxRow(change: Partial<SandboxRow> = {}): SandboxRow {
  return {
    id: 'run00000000000000000001',
    version: 0,
    runner_id: null,
    audit_key_id: null,
    audit_stored_at: null,
    network: null,
    has_env: false,
    cwd: null,
    team_id: 'team1',
    organization_id: 'org1',
    status: 'running',
    status_reason: null,
    name: null,
    image: 'coppice/base:1',
    region: 'us',
    vcpus: 1,
    mem_mib: 1024,
    disk_mib: 1024,
    timeout_s: 300,
    max_lifetime_s: null,
    ends_at: null,
    labels: {},
    parent_id: null,
    origin: null,
    auto_hibernate: false,
    hibernation_id: null,
    hibernated_at: null,
    is_resuming: false,
    rollback_id: null,
    rollback_snapshot_id: null,
    rollback_disk_version: null,
    disk_id: null,
    disk_name: null,
    disk_version: null,
    disk_recovered_version: null,
    disk_recovered_at: null,
    hibernated_ms: 0,
    billed_ms: 0,
    create_ms: 1,
    created_at: CREATED_AT,
    last_active_at: CREATED_AT,
    last_seen_at: CREATED_AT,
    ended_at: null,
    boot_id: 'this',
    created_boot_ms: 1_000_000,
    last_seen_boot_ms: 1_000_000,
    cpu_ms: 0,
    mem_peak_bytes: 0,
    uptime_ms: 0,
    cost_units: '0',
    ...change,
  };
}

type PlainUpdate = Omit<SandboxUpdate, 'status' | 'status_reason'> & {
  status: SandboxState;
  status_reason?: StatusReason | null;
};

/** A change of state that no event made: as if another control had committed it. */
export function forceState(change: PlainUpdate): SandboxUpdate {
  return change as SandboxUpdate;
}

/** Inserts a sandbox like another one, as if another control had created it. */
export async function copySandbox(
  db: Database,
  id: string,
  change: { id: string; hibernation_id?: string },
): Promise<void> {
  await sql`
    INSERT INTO sandboxes SELECT (jsonb_populate_record(sandboxes, ${JSON.stringify(change)}::jsonb)).*
    FROM sandboxes WHERE id = ${id}`.execute(db);
}

/** Inserts a sandbox in any state. Its id, its organization and its team must be given. */
export async function insertSandbox(
  db: Database,
  change: Partial<SandboxRow> & Pick<SandboxRow, 'id' | 'organization_id' | 'team_id'>,
): Promise<void> {
  const { has_env: _, ...shown } = buildSandboxRow(change);
  const row = { ...shown, is_in_use: false };
  await sql`
    INSERT INTO sandboxes SELECT (jsonb_populate_record(null::sandboxes, ${JSON.stringify(row)}::jsonb)).*`.execute(
    db,
  );
}
