import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

/** Bills outlive the disks: the table refers to none. */
export async function createDiskStorage(db: Database): Promise<void> {
  await sql`
    CREATE TABLE disk_storage (
      disk_id text NOT NULL,
      month text NOT NULL,
      organization_id text NOT NULL REFERENCES organizations (id),
      team_id text NOT NULL REFERENCES teams (id),
      name text NOT NULL,
      byte_ms numeric(40, 0) NOT NULL,
      PRIMARY KEY (disk_id, month)
    )`.execute(db);
  await sql`CREATE INDEX disk_storage_by_month ON disk_storage (organization_id, month)`.execute(db);
}

export async function addDiskLimits(db: Database): Promise<void> {
  await sql`ALTER TABLE organization_limits
    ADD COLUMN disks integer CHECK (disks >= 0),
    ADD COLUMN disk_gb integer CHECK (disk_gb >= 0)`.execute(db);
}
