import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export async function createRegistryCredentials(db: Database): Promise<void> {
  await sql`
    CREATE TABLE registry_credentials (
      organization_id text NOT NULL REFERENCES organizations (id),
      registry text NOT NULL,
      username text NOT NULL,
      sealed_password bytea NOT NULL,
      updated_at bigint NOT NULL,
      PRIMARY KEY (organization_id, registry)
    )`.execute(db);
}
