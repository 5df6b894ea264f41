/** Teams, and the people who are in them. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const teamsMigration: Migration = {
  async up(db: Database) {
    await createTeams(db);
    await createPeople(db);
  },
};

/** Existing keys and sandboxes become those of a first team of their organization. */
async function createTeams(db: Database): Promise<void> {
  await sql`
    CREATE TABLE teams (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      name text NOT NULL,
      created_at bigint NOT NULL,
      UNIQUE (organization_id, name)
    )`.execute(db);
  await sql`
    INSERT INTO teams (id, organization_id, name, created_at)
    SELECT 'team' || left(md5(id), 20), id, 'default', created_at FROM organizations`.execute(db);
  await sql`
    CREATE TABLE team_secrets (
      id text PRIMARY KEY,
      team_id text NOT NULL REFERENCES teams (id),
      sealed_secret bytea NOT NULL,
      created_at bigint NOT NULL
    )`.execute(db);
  await sql`CREATE INDEX team_secrets_by_age ON team_secrets (team_id, created_at DESC, id DESC)`.execute(db);
  for (const table of ['api_keys', 'sandboxes'] as const) {
    const name = sql.table(table);
    await sql`ALTER TABLE ${name} ADD COLUMN team_id text REFERENCES teams (id)`.execute(db);
    await sql`
      UPDATE ${name} SET team_id = teams.id FROM teams
      WHERE teams.organization_id = ${name}.organization_id`.execute(db);
    await sql`ALTER TABLE ${name} ALTER COLUMN team_id SET NOT NULL`.execute(db);
  }
  await sql`
    ALTER TABLE api_keys
      ADD COLUMN name text NOT NULL DEFAULT '',
      ADD COLUMN last_used_at bigint,
      ADD COLUMN expires_at bigint`.execute(db);
  await sql`CREATE INDEX api_keys_by_team ON api_keys (team_id, created_at DESC)`.execute(db);
}

async function createPeople(db: Database): Promise<void> {
  await sql`
    CREATE TABLE users (
      id text PRIMARY KEY,
      email text NOT NULL UNIQUE,
      name text NOT NULL,
      password_hash text NOT NULL,
      created_at bigint NOT NULL
    )`.execute(db);
  await sql`
    CREATE TABLE memberships (
      organization_id text NOT NULL REFERENCES organizations (id),
      user_id text NOT NULL REFERENCES users (id),
      role text NOT NULL CHECK (role IN ('owner', 'member')),
      created_at bigint NOT NULL,
      PRIMARY KEY (organization_id, user_id)
    )`.execute(db);
  await sql`CREATE INDEX memberships_by_user ON memberships (user_id)`.execute(db);
  await sql`
    CREATE TABLE team_members (
      team_id text NOT NULL REFERENCES teams (id),
      user_id text NOT NULL REFERENCES users (id),
      created_at bigint NOT NULL,
      PRIMARY KEY (team_id, user_id)
    )`.execute(db);
  await sql`
    CREATE TABLE login_sessions (
      sha256 bytea PRIMARY KEY,
      user_id text NOT NULL REFERENCES users (id),
      created_at bigint NOT NULL,
      expires_at bigint NOT NULL
    )`.execute(db);
  await sql`CREATE INDEX login_sessions_by_user ON login_sessions (user_id)`.execute(db);
  await sql`
    CREATE TABLE invitations (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      email text,
      role text NOT NULL CHECK (role IN ('owner', 'member')),
      sha256 bytea NOT NULL UNIQUE,
      created_at bigint NOT NULL,
      expires_at bigint,
      accepted_at bigint
    )`.execute(db);
}
