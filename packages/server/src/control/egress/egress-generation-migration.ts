/** Cursors of notes belong to a generation of the runner's event spool: in the next one numbers begin anew. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const egressGenerationMigration: Migration = {
  async up(db: Kysely<unknown>) {
    // What a runner had stored by then is of the generation that runner-protocol.ts calls FIRST_GENERATION.
    await sql`
      ALTER TABLE egress_cursors
        ADD COLUMN generation text NOT NULL DEFAULT 'first',
        DROP CONSTRAINT egress_cursors_pkey,
        ADD PRIMARY KEY (sandbox_id, generation)`.execute(db);
    await sql`ALTER TABLE egress_cursors ALTER COLUMN generation DROP DEFAULT`.execute(db);
  },
};
