/** Schema of the audit logs of organizations: their secrets, and entries that never change. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const organizationAuditMigration: Migration = {
  async up(db: Kysely<unknown>) {
    await sql`
      CREATE TABLE organization_audit_secrets (
        id text PRIMARY KEY,
        organization_id text NOT NULL REFERENCES organizations (id),
        sealed_secret bytea NOT NULL,
        created_at bigint NOT NULL
      )`.execute(db);
    await sql`
      CREATE INDEX organization_audit_secrets_by_age
      ON organization_audit_secrets (organization_id, created_at DESC, id DESC)`.execute(db);
    await sql`
      CREATE TABLE organization_audit_entries (
        organization_id text NOT NULL REFERENCES organizations (id),
        seq integer NOT NULL CHECK (seq > 0),
        ts bigint NOT NULL,
        audit_key_id text NOT NULL REFERENCES organization_audit_secrets (id),
        event text NOT NULL,
        actor text NOT NULL,
        data text NOT NULL,
        hmac text NOT NULL,
        PRIMARY KEY (organization_id, seq)
      )`.execute(db);
    // For the filters of a read: an organization's log has no end.
    await sql`
      CREATE INDEX organization_audit_entries_by_event
      ON organization_audit_entries (organization_id, event, seq)`.execute(db);
    await sql`
      CREATE INDEX organization_audit_entries_by_actor
      ON organization_audit_entries (organization_id, (actor::jsonb ->> 'id'), seq)`.execute(db);
    await sql`
      CREATE TRIGGER organization_audit_entries_are_final
      BEFORE UPDATE OR DELETE OR TRUNCATE ON organization_audit_entries
      FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit()`.execute(db);
  },
};
