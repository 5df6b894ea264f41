/** Adds network policies, credentials, and cursors of the written notes. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const egressMigration: Migration = {
  async up(db: Database) {
    // null: unrestricted, as before there were policies.
    await sql`ALTER TABLE sandboxes ADD COLUMN network jsonb`.execute(db);
    await sql`ALTER TABLE snapshots ADD COLUMN network jsonb`.execute(db);
    await sql`
      CREATE TABLE sandbox_credentials (
        sandbox_id text NOT NULL REFERENCES sandboxes (id),
        service text NOT NULL,
        endpoints jsonb,
        sealed_secret bytea NOT NULL,
        updated_at bigint NOT NULL,
        PRIMARY KEY (sandbox_id, service)
      )`.execute(db);
    await sql`
      CREATE TABLE egress_cursors (
        sandbox_id text PRIMARY KEY REFERENCES sandboxes (id),
        seq bigint NOT NULL
      )`.execute(db);
  },
};
