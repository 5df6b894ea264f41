import { sql, type Kysely } from 'kysely';

/** A context that waits, or that a build uses. Its files are in the data directory of one control. */
export interface BuildContextTable {
  id: string;
  organization_id: string;
  /** The control that has received it. */
  control_id: string;
  /** Unix milliseconds, by the clock of PostgreSQL: later than the context itself expires, see context-store.ts. */
  expires_at: number;
}

/** Without an index for the hourly purge: there are few rows. */
export async function createBuildContexts(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE build_contexts (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      control_id text NOT NULL,
      expires_at bigint NOT NULL
    )`.execute(db);
}
