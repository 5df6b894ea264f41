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

/** For the last use of an image by any organization, and for the images of all organizations in the object store. */
export async function indexDigestsOfUses(db: Database): Promise<void> {
  await sql`CREATE INDEX image_uses_by_digest ON image_uses (digest, last_used_at)`.execute(db);
  await sql`
    CREATE INDEX capture_objects_of_everyone ON capture_objects (organization_id)
    WHERE organization_id = 'prepared'`.execute(db);
}
