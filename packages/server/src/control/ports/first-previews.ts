import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function createPreviews(db: Database): Promise<void> {
  await sql`
    CREATE TABLE previews (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      sandbox_id text NOT NULL REFERENCES sandboxes (id),
      port integer NOT NULL,
      created_at bigint NOT NULL,
      expires_at bigint NOT NULL,
      revoked_at bigint
    )`.execute(db);
  await sql`CREATE INDEX previews_by_sandbox ON previews (sandbox_id, expires_at)`.execute(db);
  await sql`CREATE INDEX previews_by_age ON previews (expires_at)`.execute(db);
}
