import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const commandsMigration: Migration = {
  async up(db: Kysely<unknown>) {
    await sql`
      CREATE TABLE commands (
        id text PRIMARY KEY,
        organization_id text NOT NULL REFERENCES organizations (id),
        sandbox_id text NOT NULL REFERENCES sandboxes (id),
        guest_id text NOT NULL,
        command text NOT NULL,
        tag text,
        state text NOT NULL CHECK (state IN ('starting', 'running', 'exited', 'lost')),
        exit_code integer,
        timed_out boolean NOT NULL DEFAULT false,
        output_bytes bigint NOT NULL DEFAULT 0,
        dropped_bytes bigint NOT NULL DEFAULT 0,
        start_seq integer,
        started_at bigint NOT NULL,
        ended_at bigint,
        UNIQUE (sandbox_id, guest_id)
      )`.execute(db);
    await sql`CREATE INDEX commands_by_age ON commands (sandbox_id, started_at DESC, id DESC)`.execute(db);
    await sql`CREATE INDEX commands_open ON commands (sandbox_id) WHERE state IN ('starting', 'running')`.execute(
      db,
    );
  },
};
