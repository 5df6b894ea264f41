/** Adds the columns of a sandbox's pending rollback. They are null if its outcome is known. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const rollbacksMigration: Migration = {
  async up(db: Kysely<unknown>) {
    await sql`
      ALTER TABLE sandboxes
        ADD COLUMN rollback_id text,
        ADD COLUMN rollback_snapshot_id text,
        ADD CHECK ((rollback_id IS NULL) = (rollback_snapshot_id IS NULL))`.execute(db);
  },
};
