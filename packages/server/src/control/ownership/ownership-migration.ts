import { sql, type Kysely } from 'kysely';

export async function createOwnership(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE controls (
      id text PRIMARY KEY,
      node_id text NOT NULL,
      version text NOT NULL,
      started_at bigint NOT NULL,
      lease_until bigint NOT NULL,
      is_fenced boolean NOT NULL DEFAULT false,
      address text
    )`.execute(db);
  await sql`
    CREATE TABLE runners (
      id text PRIMARY KEY,
      region text NOT NULL,
      local_to text UNIQUE,
      owner text REFERENCES controls (id) ON DELETE SET NULL,
      epoch bigint NOT NULL DEFAULT 0,
      mem_free_mib bigint NOT NULL DEFAULT 0,
      vcpus_free bigint NOT NULL DEFAULT 0,
      cordoned_at bigint,
      drain_until bigint
    )`.execute(db);
}

/** Adds what control needs to connect to a runner of another machine; without values for one of the same machine. */
export async function addRunnerAddresses(db: Kysely<unknown>): Promise<void> {
  await sql`
    ALTER TABLE runners
      ADD COLUMN address text,
      ADD COLUMN fingerprint text,
      ADD COLUMN joined_at bigint,
      ADD COLUMN revoked_at bigint`.execute(db);
}

/** Adds what owners report of their runners, and when a runner was last handed over. */
export async function addRunnerReports(db: Kysely<unknown>): Promise<void> {
  await sql`
    ALTER TABLE runners
      ADD COLUMN heard_at bigint,
      ADD COLUMN report jsonb,
      ADD COLUMN handed_at bigint,
      ADD COLUMN taking_until bigint`.execute(db);
}

/** Adds that a control is ending. */
export async function addLeavingControls(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE controls ADD COLUMN is_leaving boolean NOT NULL DEFAULT false`.execute(db);
}

/** One moment for all sandboxes of a runner, which before was written into the row of each. */
export async function addSeenMoments(db: Kysely<unknown>): Promise<void> {
  await sql`
    ALTER TABLE runners
      ADD COLUMN seen_at bigint,
      ADD COLUMN seen_boot_id text,
      ADD COLUMN seen_boot_ms double precision`.execute(db);
}
