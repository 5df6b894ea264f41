/** Adds an id that distinguishes this database from other installations'. Backups omit it: see backup-tables.ts. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const installationMigration: Migration = {
  async up(db: Kysely<unknown>) {
    await sql`
      CREATE TABLE installation (
        is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
        id uuid NOT NULL DEFAULT gen_random_uuid()
      )`.execute(db);
    await sql`INSERT INTO installation DEFAULT VALUES`.execute(db);
  },
};
