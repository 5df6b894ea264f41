import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function createImageUses(db: Database): Promise<void> {
  await sql`
    CREATE TABLE image_uses (
      organization_id text NOT NULL REFERENCES organizations (id),
      image text NOT NULL,
      digest text NOT NULL,
      last_used_at bigint NOT NULL,
      PRIMARY KEY (organization_id, image)
    )`.execute(db);
  await sql`CREATE INDEX image_uses_by_age ON image_uses (organization_id, last_used_at DESC)`.execute(db);
}
