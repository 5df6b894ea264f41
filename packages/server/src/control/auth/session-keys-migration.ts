/** Keys of sessions. They end with their session, and the preview links that were requested with them do, too. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const sessionKeysMigration: Migration = {
  async up(db: Database) {
    await sql`
      ALTER TABLE api_keys
        ADD COLUMN session_id text REFERENCES login_sessions (id) ON DELETE CASCADE`.execute(db);
    // For the end of sessions, and for the times of their last use.
    await sql`
      CREATE INDEX api_keys_by_session ON api_keys (session_id) WHERE session_id IS NOT NULL`.execute(db);
    await sql`
      ALTER TABLE previews
        DROP CONSTRAINT previews_api_key_id_fkey,
        ADD FOREIGN KEY (api_key_id) REFERENCES api_keys (id) ON DELETE CASCADE`.execute(db);
    await sql`CREATE INDEX previews_by_key ON previews (api_key_id)`.execute(db);
  },
};
