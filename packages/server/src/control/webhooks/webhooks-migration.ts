import { sql, type Kysely } from 'kysely';

export async function createWebhooks(db: Kysely<unknown>): Promise<void> {
  await sql`
    CREATE TABLE webhooks (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      url text NOT NULL,
      types text[] NOT NULL,
      description text NOT NULL,
      enabled boolean NOT NULL,
      disabled_reason text,
      failing_since bigint,
      sealed_secret bytea NOT NULL,
      sealed_old_secret bytea,
      old_secret_until bigint,
      created_at bigint NOT NULL
    )`.execute(db);
  await sql`CREATE INDEX webhooks_of_organization ON webhooks (organization_id)`.execute(db);
  await sql`
    CREATE TABLE webhook_deliveries (
      id text PRIMARY KEY,
      webhook_id text NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
      event_id bigint,
      type text NOT NULL,
      payload text NOT NULL,
      state text NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
      attempts integer NOT NULL DEFAULT 0,
      tries integer NOT NULL DEFAULT 0,
      next_at bigint,
      created_at bigint NOT NULL
    )`.execute(db);
  await sql`
    CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_at, id)
    WHERE state = 'pending'`.execute(db);
  await sql`
    CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (webhook_id, created_at DESC, id DESC)`.execute(
    db,
  );
  await sql`CREATE INDEX webhook_deliveries_to_purge ON webhook_deliveries (created_at)`.execute(db);
  await sql`
    CREATE TABLE webhook_attempts (
      delivery_id text NOT NULL REFERENCES webhook_deliveries (id) ON DELETE CASCADE,
      attempt integer NOT NULL,
      started_at bigint NOT NULL,
      duration_ms bigint NOT NULL,
      status integer,
      error text,
      response text NOT NULL,
      PRIMARY KEY (delivery_id, attempt)
    )`.execute(db);
}
