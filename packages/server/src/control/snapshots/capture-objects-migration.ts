import { sql, type Kysely } from 'kysely';

export async function createCaptureObjects(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE capture_objects (
      capture_id text PRIMARY KEY,
      organization_id text NOT NULL,
      runner_id text NOT NULL,
      created_at bigint NOT NULL,
      stored_at bigint,
      stored_bytes bigint NOT NULL DEFAULT 0,
      removed_at bigint
    )`.execute(db);
  await sql`
    CREATE INDEX sandboxes_by_hibernation ON sandboxes (hibernation_id)
    WHERE hibernation_id IS NOT NULL`.execute(db);
}
