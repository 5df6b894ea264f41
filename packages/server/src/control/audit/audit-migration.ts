/** Schema of audit logs: a key for each chain, and entries that never change. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const auditMigration: Migration = {
  async up(db: Database) {
    await addAuditKeys(db);
    await createEntries(db);
  },
};

async function addAuditKeys(db: Database): Promise<void> {
  await sql`
    ALTER TABLE sandboxes
      ADD COLUMN audit_key_id text REFERENCES team_secrets (id),
      ADD COLUMN audit_stored_at bigint`.execute(db);
  await sql`
    CREATE INDEX sandboxes_audit_to_store ON sandboxes (ended_at)
    WHERE audit_key_id IS NOT NULL AND audit_stored_at IS NULL AND ended_at IS NOT NULL`.execute(db);
}

/** Entries are only added: no statement of the service can change or remove one. */
async function createEntries(db: Database): Promise<void> {
  await sql`
    CREATE TABLE audit_entries (
      sandbox_id text NOT NULL,
      seq integer NOT NULL CHECK (seq > 0),
      ts bigint NOT NULL,
      event text NOT NULL,
      data text NOT NULL,
      hmac text NOT NULL,
      PRIMARY KEY (sandbox_id, seq)
    )`.execute(db);
  await sql`
    CREATE FUNCTION refuse_change_of_audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION 'audit entries are never changed or removed';
    END $$`.execute(db);
  await sql`
    CREATE TRIGGER audit_entries_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit()`.execute(db);
}
