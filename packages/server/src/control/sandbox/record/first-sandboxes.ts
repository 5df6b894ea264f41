/** The first migrations of the tables of sandboxes and Idempotency-Keys. */
import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function createSandboxes(db: Database): Promise<void> {
  await sql`
    CREATE TABLE sandboxes (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      status text NOT NULL CHECK (status IN ('creating', 'running', 'hibernated', 'destroyed', 'failed')),
      status_reason text,
      image text NOT NULL,
      region text NOT NULL,
      vcpus integer NOT NULL,
      mem_mib integer NOT NULL,
      disk_mib integer NOT NULL,
      timeout_s integer NOT NULL,
      max_lifetime_s integer,
      labels jsonb NOT NULL,
      parent_id text,
      create_ms integer,
      created_at bigint NOT NULL,
      last_active_at bigint NOT NULL,
      last_seen_at bigint NOT NULL,
      ended_at bigint,
      cpu_ms bigint NOT NULL DEFAULT 0,
      mem_peak_bytes bigint NOT NULL DEFAULT 0,
      uptime_ms bigint NOT NULL DEFAULT 0,
      cost_units numeric(40, 0) NOT NULL DEFAULT 0,
      CHECK ((ended_at IS NOT NULL) = (status IN ('destroyed', 'failed')))
    )`.execute(db);
  await sql`CREATE INDEX sandboxes_by_age ON sandboxes (organization_id, created_at DESC, id DESC)`.execute(
    db,
  );
  await sql`CREATE INDEX sandboxes_alive ON sandboxes (status)
    WHERE status IN ('creating', 'running', 'hibernated')`.execute(db);
}

export async function createIdempotencyKeys(db: Database): Promise<void> {
  await sql`
    CREATE TABLE idempotency_keys (
      organization_id text NOT NULL REFERENCES organizations (id),
      route text NOT NULL,
      key text NOT NULL,
      body_sha256 bytea NOT NULL,
      sandbox_id text NOT NULL,
      created_at bigint NOT NULL,
      status_code integer,
      answer text,
      PRIMARY KEY (organization_id, route, key)
    )`.execute(db);
  await sql`CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at)`.execute(db);
}

export async function addTimesSinceBoot(db: Database): Promise<void> {
  await db.schema
    .alterTable('sandboxes')
    .addColumn('boot_id', 'text')
    .addColumn('created_boot_ms', 'double precision')
    .addColumn('last_seen_boot_ms', 'double precision')
    .execute();
}

export async function addHibernation(db: Database): Promise<void> {
  await sql`
    ALTER TABLE sandboxes
      ADD COLUMN origin text,
      ADD COLUMN auto_hibernate boolean NOT NULL DEFAULT false,
      ADD COLUMN hibernation_id text,
      ADD COLUMN hibernated_at bigint,
      ADD COLUMN hibernated_boot_ms double precision,
      ADD COLUMN hibernated_ms bigint NOT NULL DEFAULT 0`.execute(db);
  await sql`CREATE INDEX sandboxes_by_parent ON sandboxes (parent_id) WHERE parent_id IS NOT NULL`.execute(
    db,
  );
}

export async function nameSubjects(db: Database): Promise<void> {
  await sql`ALTER TABLE idempotency_keys RENAME COLUMN sandbox_id TO subject_id`.execute(db);
}
