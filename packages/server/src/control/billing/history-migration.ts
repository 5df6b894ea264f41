/** Removes creates that never ran from the history, and builds the indexes of history and lineage. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const historyMigration: Migration = {
  async up(db: Database) {
    await clearUnstarted(db);
    await countHistory(db);
    await createIndexes(db);
  },
};

/** Clears `create_ms` of creates that failed for the caller although the record was `running` for a moment. */
async function clearUnstarted(db: Database): Promise<void> {
  await sql`
    UPDATE sandboxes SET create_ms = NULL
    WHERE ended_at IS NOT NULL AND create_ms IS NOT NULL AND billed_ms = 0
      AND status_reason IN ('create_failed', 'control_restarted')`.execute(db);
}

async function countHistory(db: Database): Promise<void> {
  for (const [table, owner] of [
    ['billing_accounts', 'organization_id'],
    ['team_accounts', 'team_id'],
  ] as const)
    await sql`
      UPDATE ${sql.table(table)} AS account SET ended_sandboxes = (
        SELECT count(*) FROM sandboxes
        WHERE sandboxes.${sql.ref(owner)} = account.${sql.ref(owner)}
          AND ended_at IS NOT NULL AND (create_ms IS NOT NULL OR billed_ms > 0))`.execute(db);
}

async function createIndexes(db: Database): Promise<void> {
  await sql`DROP INDEX sandboxes_ended, sandboxes_ended_of_image, sandboxes_by_parent`.execute(db);
  await sql`
    CREATE INDEX sandboxes_ended ON sandboxes (organization_id, ended_at DESC, id DESC)
    WHERE ended_at IS NOT NULL AND (create_ms IS NOT NULL OR billed_ms > 0)`.execute(db);
  await sql`
    CREATE INDEX sandboxes_ended_of_image ON sandboxes (organization_id, image text_pattern_ops, ended_at DESC, id DESC)
    WHERE ended_at IS NOT NULL AND (create_ms IS NOT NULL OR billed_ms > 0)`.execute(db);
  await sql`
    CREATE INDEX sandboxes_of_team_ended ON sandboxes (team_id, ended_at DESC, id DESC)
    WHERE ended_at IS NOT NULL AND (create_ms IS NOT NULL OR billed_ms > 0)`.execute(db);
  await sql`
    CREATE INDEX sandboxes_by_parent ON sandboxes (organization_id, parent_id, created_at, id)
    WHERE parent_id IS NOT NULL`.execute(db);
}
