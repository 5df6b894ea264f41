import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

/** Every change of a sandbox by its driver counts: two writers of a row cannot both succeed. */
export const rowVersionsMigration: Migration = {
  async up(db: Kysely<unknown>): Promise<void> {
    await sql`ALTER TABLE sandboxes ADD COLUMN version bigint NOT NULL DEFAULT 0`.execute(db);
  },
};
