import { sql, type Kysely } from 'kysely';

/** What a list shows of a live sandbox, for controls without its driver. */
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
