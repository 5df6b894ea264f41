import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function createDisks(db: Database): Promise<void> {
  // A disk is taken in the transaction that inserts its sandbox, before the sandbox.
  await sql`
    CREATE TABLE disks (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      team_id text NOT NULL REFERENCES teams (id),
      name text NOT NULL,
      status text NOT NULL CHECK (status IN ('creating', 'ready', 'deleting')),
      size_gb integer NOT NULL CHECK (size_gb > 0),
      growing_to_gb integer,
      durability text NOT NULL CHECK (durability IN ('local', 'object')),
      sandbox_id text REFERENCES sandboxes (id) DEFERRABLE INITIALLY DEFERRED,
      attachment text CHECK (attachment IN ('attaching', 'attached', 'detaching')),
      parent_id text,
      parent_version integer,
      version integer NOT NULL DEFAULT 0,
      drained_at bigint NOT NULL DEFAULT 0,
      dirty_bytes bigint NOT NULL DEFAULT 0,
      waits_for text,
      stored_bytes bigint NOT NULL DEFAULT 0,
      stored_at bigint NOT NULL,
      stored_version integer,
      created_at bigint NOT NULL,
      CHECK ((sandbox_id IS NULL) = (attachment IS NULL))
    )`.execute(db);
  await sql`CREATE UNIQUE INDEX disks_by_name ON disks (organization_id, name) WHERE status <> 'deleting'`.execute(
    db,
  );
  await sql`CREATE INDEX disks_by_age ON disks (organization_id, created_at DESC, id DESC)`.execute(db);
  await sql`CREATE INDEX disks_by_parent ON disks (parent_id) WHERE parent_id IS NOT NULL`.execute(db);
  await sql`CREATE INDEX disks_by_sandbox ON disks (sandbox_id) WHERE sandbox_id IS NOT NULL`.execute(db);
  await sql`
    CREATE TABLE disk_snapshots (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      disk_id text NOT NULL REFERENCES disks (id) ON DELETE CASCADE,
      name text NOT NULL,
      status text NOT NULL CHECK (status IN ('creating', 'ready', 'deleting')),
      version integer,
      size_gb integer NOT NULL,
      created_at bigint NOT NULL
    )`.execute(db);
  await sql`CREATE UNIQUE INDEX disk_snapshots_by_name ON disk_snapshots (disk_id, name)
    WHERE status <> 'deleting'`.execute(db);
}

/** Names the control of each disk and each snapshot that is being made or removed: another one must not take it for left over. */
export async function nameControlsOfDisks(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE disks ADD COLUMN control_id text`.execute(db);
  await sql`ALTER TABLE disk_snapshots ADD COLUMN control_id text`.execute(db);
}
