/** Binds cursors of notes to a generation of the runner's event spool: each generation numbers its events anew. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const egressGenerationMigration: Migration = {
  async up(db: Kysely<unknown>) {
    // Events stored before belong to the generation that runner-protocol.ts calls FIRST_GENERATION.
    await sql`
      ALTER TABLE egress_cursors
        ADD COLUMN generation text NOT NULL DEFAULT 'first',
        DROP CONSTRAINT egress_cursors_pkey,
        ADD PRIMARY KEY (sandbox_id, generation)`.execute(db);
    await sql`ALTER TABLE egress_cursors ALTER COLUMN generation DROP DEFAULT`.execute(db);
  },
};
