import { sql, type Kysely } from 'kysely';

export async function createAuthority(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE authorities (
      id text PRIMARY KEY,
      certificate text NOT NULL,
      sealed_key bytea NOT NULL,
      created_at bigint NOT NULL
    )`.execute(db);
  await sql`
    CREATE TABLE join_tokens (
      secret_hash text PRIMARY KEY,
      runner_id text,
      created_at bigint NOT NULL,
      expires_at bigint NOT NULL,
      used_at bigint,
      used_by text
    )`.execute(db);
}
