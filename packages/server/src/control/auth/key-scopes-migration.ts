/** Adds limits of keys, and the sums and the index for lists and usage of one team. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const keyScopesMigration: Migration = {
  async up(db: Database) {
    await addKeyLimits(db);
    await createTeamAccounts(db);
    await createTeamIndexes(db);
  },
};

/** Existing keys stay without limits. */
async function addKeyLimits(db: Database): Promise<void> {
  await sql`
    ALTER TABLE api_keys
      ADD COLUMN scope text NOT NULL DEFAULT 'full' CHECK (scope IN ('full', 'read')),
      ADD COLUMN team_only boolean NOT NULL DEFAULT false`.execute(db);
}

async function createTeamAccounts(db: Database): Promise<void> {
  await sql`
    CREATE TABLE team_accounts (
      team_id text PRIMARY KEY REFERENCES teams (id),
      ended_sandboxes bigint NOT NULL DEFAULT 0,
      vcpu_ms numeric(40, 0) NOT NULL DEFAULT 0,
      mem_mib_ms numeric(40, 0) NOT NULL DEFAULT 0
    )`.execute(db);
  await sql`
    INSERT INTO team_accounts (team_id, ended_sandboxes, vcpu_ms, mem_mib_ms)
    SELECT team_id, count(*), sum(vcpus * billed_ms), sum(mem_mib * billed_ms)
    FROM sandboxes WHERE ended_at IS NOT NULL GROUP BY team_id`.execute(db);
}

async function createTeamIndexes(db: Database): Promise<void> {
  await sql`CREATE INDEX sandboxes_of_team_by_age ON sandboxes (team_id, created_at DESC, id DESC)`.execute(
    db,
  );
}
