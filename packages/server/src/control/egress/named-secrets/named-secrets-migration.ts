/** Adds the named secrets of organizations, and credentials that refer to them. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const namedSecretsMigration: Migration = {
  async up(db: Kysely<unknown>) {
    await sql`
      CREATE TABLE named_secrets (
        id text PRIMARY KEY,
        organization_id text NOT NULL REFERENCES organizations (id),
        name text NOT NULL,
        sealed_value bytea NOT NULL,
        version integer NOT NULL,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        UNIQUE (organization_id, name)
      )`.execute(db);
    // A secret that credentials refer to cannot be deleted.
    await sql`
      ALTER TABLE sandbox_credentials
        ALTER COLUMN sealed_secret DROP NOT NULL,
        ADD COLUMN secret_id text REFERENCES named_secrets (id),
        ADD COLUMN secret_version integer,
        ADD CHECK ((sealed_secret IS NULL) = (secret_id IS NOT NULL)),
        ADD CHECK ((secret_id IS NULL) = (secret_version IS NULL))`.execute(db);
    await sql`
      CREATE INDEX sandbox_credentials_secret ON sandbox_credentials (secret_id)
      WHERE secret_id IS NOT NULL`.execute(db);
  },
};
