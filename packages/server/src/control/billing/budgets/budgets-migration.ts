import { sql, type Kysely } from 'kysely';

type Database = Kysely<unknown>;

export const budgetsMigration = {
  async up(db: Database): Promise<void> {
    await sql`
      CREATE TABLE budgets (
        organization_id text NOT NULL REFERENCES organizations (id),
        scope text NOT NULL,
        team_id text REFERENCES teams (id) CHECK (scope = coalesce(team_id, 'organization')),
        month_cents bigint NOT NULL CHECK (month_cents > 0),
        alert_percents integer[] NOT NULL CHECK (cardinality(alert_percents) > 0),
        updated_at bigint NOT NULL,
        PRIMARY KEY (organization_id, scope)
      )`.execute(db);
    await sql`
      CREATE TABLE budget_alerts (
        organization_id text NOT NULL,
        scope text NOT NULL,
        month text NOT NULL,
        percent integer NOT NULL,
        reached_at bigint NOT NULL,
        PRIMARY KEY (organization_id, scope, month, percent),
        FOREIGN KEY (organization_id, scope) REFERENCES budgets ON DELETE CASCADE
      )`.execute(db);
  },
};
