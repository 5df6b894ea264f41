import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function addSnapshotSettings(db: Database): Promise<void> {
  await sql`ALTER TABLE snapshots
    ADD COLUMN expires_at bigint,
    ADD COLUMN sealed_env bytea,
    ADD COLUMN cwd text`.execute(db);
  await sql`CREATE INDEX snapshots_by_expiry ON snapshots (expires_at) WHERE expires_at IS NOT NULL`.execute(
    db,
  );
  await sql`CREATE INDEX sandboxes_by_rollback ON sandboxes (rollback_snapshot_id)
    WHERE rollback_snapshot_id IS NOT NULL`.execute(db);
}
