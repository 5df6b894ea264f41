import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const builtImagesMigration: Migration = {
  async up(db: Kysely<unknown>) {
    await createImages(db);
    await createBuilds(db);
  },
};

async function createImages(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE built_images (
      organization_id text NOT NULL REFERENCES organizations (id),
      team_id text NOT NULL REFERENCES teams (id),
      name text NOT NULL,
      digest text NOT NULL,
      size_bytes bigint NOT NULL,
      built_at bigint NOT NULL,
      PRIMARY KEY (organization_id, name)
    )`.execute(db);
  await sql`CREATE INDEX built_images_by_digest ON built_images (digest)`.execute(db);
  await sql`
    CREATE TABLE image_steps (
      organization_id text NOT NULL REFERENCES organizations (id),
      key text NOT NULL,
      digest text NOT NULL,
      size_bytes bigint NOT NULL,
      last_used_at bigint NOT NULL,
      PRIMARY KEY (organization_id, key)
    )`.execute(db);
  await sql`CREATE INDEX image_steps_by_digest ON image_steps (digest)`.execute(db);
  await sql`CREATE INDEX image_steps_by_use ON image_steps (last_used_at)`.execute(db);
  await sql`
    CREATE TABLE image_releases (
      digest text PRIMARY KEY,
      noted_at bigint NOT NULL
    )`.execute(db);
}

async function createBuilds(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE image_builds (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      team_id text NOT NULL REFERENCES teams (id),
      name text NOT NULL,
      base text NOT NULL,
      sandbox_id text NOT NULL,
      state text NOT NULL CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
      steps integer NOT NULL,
      steps_done integer NOT NULL DEFAULT 0,
      digest text,
      size_bytes bigint,
      error_code text,
      error_message text,
      created_at bigint NOT NULL,
      ended_at bigint,
      team_only boolean NOT NULL,
      cleaned boolean NOT NULL DEFAULT false
    )`.execute(db);
  await sql`CREATE INDEX image_builds_by_age ON image_builds (organization_id, created_at DESC, id DESC)`.execute(
    db,
  );
  await sql`CREATE INDEX image_builds_unclean ON image_builds (created_at, id) WHERE NOT cleaned`.execute(db);
  await sql`CREATE INDEX image_builds_by_end ON image_builds (ended_at) WHERE cleaned`.execute(db);
  await sql`
    CREATE TABLE image_build_events (
      build_id text NOT NULL REFERENCES image_builds (id) ON DELETE CASCADE,
      seq integer NOT NULL,
      event text NOT NULL,
      PRIMARY KEY (build_id, seq)
    )`.execute(db);
}

/** Names the control that runs each build, and lets another one cancel it. */
export async function nameControlsOfBuilds(db: Kysely<unknown>): Promise<void> {
  await sql`
    ALTER TABLE image_builds ADD COLUMN control_id text, ADD COLUMN is_cancelled boolean NOT NULL DEFAULT false`.execute(
    db,
  );
  await sql`CREATE INDEX image_builds_running ON image_builds (organization_id) WHERE state = 'running'`.execute(
    db,
  );
}

/** Each runner looks for its images that are not in the object store yet. */
export async function indexRunnersOfImages(db: Kysely<unknown>): Promise<void> {
  await sql`CREATE INDEX built_images_by_runner ON built_images (runner_id)`.execute(db);
}

/** An image that was built is at one runner. */
export async function nameRunnersOfImages(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE built_images ADD COLUMN runner_id text`.execute(db);
}
