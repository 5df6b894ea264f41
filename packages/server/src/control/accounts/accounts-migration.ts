/** Columns and indexes of people's accounts that teams-migration.ts lacks. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const accountsMigration: Migration = {
  async up(db: Database) {
    await markFirstOrganization(db);
    await describeSessions(db);
    await sql`ALTER TABLE previews ADD COLUMN api_key_id text REFERENCES api_keys (id)`.execute(db);
    await sql`CREATE INDEX invitations_by_organization ON invitations (organization_id)`.execute(db);
  },
};

/**
 * Marks the first organization, which may be renamed. Names need not be unique: a clash would disclose another
 * organization's name.
 */
async function markFirstOrganization(db: Database): Promise<void> {
  await sql`ALTER TABLE organizations ADD COLUMN is_first boolean NOT NULL DEFAULT false`.execute(db);
  await sql`UPDATE organizations SET is_first = true WHERE name = 'default'`.execute(db);
  await sql`CREATE UNIQUE INDEX organizations_first ON organizations (is_first) WHERE is_first`.execute(db);
  await sql`ALTER TABLE organizations DROP CONSTRAINT organizations_name_key`.execute(db);
}

/** Adds where sessions began and when they were last used. The origin of existing sessions is unknown. */
async function describeSessions(db: Database): Promise<void> {
  await sql`
    ALTER TABLE login_sessions
      ADD COLUMN id text UNIQUE,
      ADD COLUMN last_used_at bigint,
      ADD COLUMN client_address text NOT NULL DEFAULT '',
      ADD COLUMN user_agent text NOT NULL DEFAULT ''`.execute(db);
  await sql`
    UPDATE login_sessions SET
      id = 'ses' || left(md5(sha256::text), 20), last_used_at = created_at`.execute(db);
  await sql`
    ALTER TABLE login_sessions
      ALTER COLUMN id SET NOT NULL,
      ALTER COLUMN last_used_at SET NOT NULL,
      ALTER COLUMN client_address DROP DEFAULT,
      ALTER COLUMN user_agent DROP DEFAULT`.execute(db);
  await sql`CREATE INDEX login_sessions_by_age ON login_sessions (expires_at)`.execute(db);
}
