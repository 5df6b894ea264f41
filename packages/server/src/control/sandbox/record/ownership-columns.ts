import { sql, type Kysely } from 'kysely';

/** Every change of a sandbox by its driver counts: two writers of a row cannot both succeed. */
export async function addRowVersions(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE sandboxes ADD COLUMN version bigint NOT NULL DEFAULT 0`.execute(db);
}

export async function addRunnerIds(db: Kysely<unknown>): Promise<void> {
  await sql`ALTER TABLE sandboxes ADD COLUMN runner_id text`.execute(db);
  await sql`
    CREATE INDEX sandboxes_by_runner ON sandboxes (runner_id)
    WHERE status IN ('creating', 'running', 'hibernated')`.execute(db);
}
