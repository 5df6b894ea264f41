import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function addSnapshotDisks(db: Database): Promise<void> {
  await sql`ALTER TABLE snapshots
    ADD COLUMN disk_id text,
    ADD COLUMN disk_name text,
    ADD COLUMN disk_version integer,
    ADD COLUMN disk_gb integer`.execute(db);
}
