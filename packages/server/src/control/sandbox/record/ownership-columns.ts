import { sql, type Kysely } from 'kysely';

/** Every change of a sandbox by its driver counts: two writers of a row cannot both succeed. */
export async function addRowVersions(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE sandboxes ADD COLUMN version bigint NOT NULL DEFAULT 0`.execute(db);
}

/** Counts of an organization's live sandboxes read only this index. */
export async function addQuotaColumns(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE sandboxes ADD COLUMN is_resuming boolean NOT NULL DEFAULT false`.execute(db);
  await sql`
    CREATE INDEX sandboxes_held ON sandboxes (organization_id) INCLUDE (status, is_resuming, vcpus, mem_mib)
    WHERE status IN ('creating', 'running', 'hibernated')`.execute(db);
}

export async function nameControlsOfKeys(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE idempotency_keys ADD COLUMN control_id text`.execute(db);
}

export async function addRunnerIds(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE sandboxes ADD COLUMN runner_id text`.execute(db);
  await sql`
    CREATE INDEX sandboxes_by_runner ON sandboxes (runner_id, id)
    WHERE status IN ('creating', 'running', 'hibernated')`.execute(db);
  await sql`ALTER TABLE snapshots ADD COLUMN runner_id text`.execute(db);
  await sql`CREATE INDEX snapshots_by_runner ON snapshots (runner_id)`.execute(db);
}

/** Lists show these columns of live sandboxes at controls without their drivers. */
export async function addLiveColumns(db: Kysely<unknown>): Promise<void> {
  await sql`
    ALTER TABLE sandboxes
      ADD COLUMN operation text,
      ADD COLUMN is_in_use boolean NOT NULL DEFAULT false`.execute(db);
  await sql`
    CREATE INDEX sandboxes_live ON sandboxes (organization_id, created_at DESC, id DESC)
    WHERE status IN ('creating', 'running', 'hibernated')`.execute(db);
  // The index above also finds what this one did.
  await sql`DROP INDEX sandboxes_alive_of`.execute(db);
}
