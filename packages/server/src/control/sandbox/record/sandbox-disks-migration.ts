import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function addSandboxDisks(db: Database): Promise<void> {
  await sql`ALTER TABLE sandboxes
    ADD COLUMN disk_id text,
    ADD COLUMN disk_name text,
    ADD COLUMN disk_version integer,
    ADD COLUMN disk_recovered_version integer,
    ADD COLUMN disk_recovered_at bigint,
    ADD COLUMN rollback_disk_version integer`.execute(db);
}
