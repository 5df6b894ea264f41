import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function addSandboxSettings(db: Database): Promise<void> {
  await sql`ALTER TABLE sandboxes
    ADD COLUMN name text,
    ADD COLUMN ends_at bigint,
    ADD COLUMN sealed_env bytea,
    ADD COLUMN cwd text`.execute(db);
  await sql`CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (team_id, name)
    WHERE name IS NOT NULL AND status IN ('creating', 'running', 'hibernated')`.execute(db);
  await sql`CREATE INDEX sandboxes_named ON sandboxes (organization_id, name, created_at DESC, id DESC)
    WHERE name IS NOT NULL`.execute(db);
}

export async function addSandboxDisks(db: Database): Promise<void> {
  await sql`ALTER TABLE sandboxes
    ADD COLUMN disk_id text,
    ADD COLUMN disk_name text,
    ADD COLUMN disk_version integer,
    ADD COLUMN disk_recovered_version integer,
    ADD COLUMN disk_recovered_at bigint,
    ADD COLUMN rollback_disk_version integer`.execute(db);
}
