import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function createSnapshots(db: Database): Promise<void> {
  await sql`
    CREATE TABLE snapshots (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      status text NOT NULL CHECK (status IN ('creating', 'ready', 'deleting')),
      run_id text NOT NULL REFERENCES sandboxes (id),
      name text,
      image text NOT NULL,
      vcpus integer NOT NULL,
      mem_mib integer NOT NULL,
      disk_mib integer NOT NULL,
      size_bytes bigint NOT NULL,
      bound_to jsonb NOT NULL,
      created_at bigint NOT NULL,
      timeout_s integer NOT NULL,
      max_lifetime_s integer,
      labels jsonb NOT NULL,
      auto_hibernate boolean NOT NULL
    )`.execute(db);
  await sql`CREATE INDEX snapshots_by_age ON snapshots (organization_id, created_at DESC, id DESC)`.execute(
    db,
  );
  await sql`CREATE INDEX snapshots_by_sandbox ON snapshots (run_id)`.execute(db);
  await sql`CREATE INDEX snapshots_unsettled ON snapshots (status) WHERE status <> 'ready'`.execute(db);
}
