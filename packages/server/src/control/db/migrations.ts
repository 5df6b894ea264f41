/** Numbered migrations, run in order at start. One that was released is never edited: what it did stays done. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import { accountsMigration } from './accounts-migration.ts';
import { auditMigration } from './audit-migration.ts';
import { billingMigration } from './billing-migration.ts';
import { egressGenerationMigration } from './egress-generation-migration.ts';
import { egressMigration } from './egress-migration.ts';
import { historyMigration } from './history-migration.ts';
import { installationMigration } from './installation-migration.ts';
import { keyScopesMigration } from './key-scopes-migration.ts';
import { rollbacksMigration } from './rollbacks-migration.ts';
import { teamsMigration } from './teams-migration.ts';

type Database = Kysely<unknown>;

export const MIGRATIONS: Record<string, Migration> = {
  '0001_first': {
    async up(db: Database) {
      await createAccounts(db);
      await createSandboxes(db);
      await createIdempotencyKeys(db);
    },
  },
  '0002_private_images': {
    async up(db: Database) {
      await createRegistryCredentials(db);
      await createImageUses(db);
    },
  },
  '0003_time_since_boot': {
    async up(db: Database) {
      await db.schema
        .alterTable('sandboxes')
        .addColumn('boot_id', 'text')
        .addColumn('created_boot_ms', 'double precision')
        .addColumn('last_seen_boot_ms', 'double precision')
        .execute();
    },
  },
  '0004_previews': {
    async up(db: Database) {
      await createPreviews(db);
    },
  },
  '0005_captures': {
    async up(db: Database) {
      await addHibernation(db);
      await createSnapshots(db);
      await sql`ALTER TABLE idempotency_keys RENAME COLUMN sandbox_id TO subject_id`.execute(db);
    },
  },
  '0006_teams': teamsMigration,
  '0007_audit': auditMigration,
  '0008_accounts': accountsMigration,
  '0009_billing': billingMigration,
  '0010_egress': egressMigration,
  '0011_installation': installationMigration,
  '0012_key_scopes': keyScopesMigration,
  '0013_rollbacks': rollbacksMigration,
  '0014_history': historyMigration,
  '0015_egress_generation': egressGenerationMigration,
};

async function createAccounts(db: Database): Promise<void> {
  await db.schema
    .createTable('organizations')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('name', 'text', (column) => column.notNull().unique())
    .addColumn('region', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('api_keys')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('organization_id', 'text', (column) => column.notNull().references('organizations.id'))
    .addColumn('sha256', 'bytea', (column) => column.notNull().unique())
    .addColumn('last4', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('revoked_at', 'bigint')
    .execute();
}

async function createSandboxes(db: Database): Promise<void> {
  await sql`
    CREATE TABLE sandboxes (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      status text NOT NULL CHECK (status IN ('creating', 'running', 'hibernated', 'destroyed', 'failed')),
      status_reason text,
      image text NOT NULL,
      region text NOT NULL,
      vcpus integer NOT NULL,
      mem_mib integer NOT NULL,
      disk_mib integer NOT NULL,
      timeout_s integer NOT NULL,
      max_lifetime_s integer,
      labels jsonb NOT NULL,
      parent_id text,
      create_ms integer,
      created_at bigint NOT NULL,
      last_active_at bigint NOT NULL,
      last_seen_at bigint NOT NULL,
      ended_at bigint,
      cpu_ms bigint NOT NULL DEFAULT 0,
      mem_peak_bytes bigint NOT NULL DEFAULT 0,
      uptime_ms bigint NOT NULL DEFAULT 0,
      cost_units numeric(40, 0) NOT NULL DEFAULT 0,
      CHECK ((ended_at IS NOT NULL) = (status IN ('destroyed', 'failed')))
    )`.execute(db);
  await sql`CREATE INDEX sandboxes_by_age ON sandboxes (organization_id, created_at DESC, id DESC)`.execute(
    db,
  );
  await sql`CREATE INDEX sandboxes_alive ON sandboxes (status)
    WHERE status IN ('creating', 'running', 'hibernated')`.execute(db);
}

async function createIdempotencyKeys(db: Database): Promise<void> {
  await sql`
    CREATE TABLE idempotency_keys (
      organization_id text NOT NULL REFERENCES organizations (id),
      route text NOT NULL,
      key text NOT NULL,
      body_sha256 bytea NOT NULL,
      sandbox_id text NOT NULL,
      created_at bigint NOT NULL,
      status_code integer,
      answer text,
      PRIMARY KEY (organization_id, route, key)
    )`.execute(db);
  await sql`CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at)`.execute(db);
}

async function createRegistryCredentials(db: Database): Promise<void> {
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

async function createImageUses(db: Database): Promise<void> {
  await sql`
    CREATE TABLE image_uses (
      organization_id text NOT NULL REFERENCES organizations (id),
      image text NOT NULL,
      digest text NOT NULL,
      last_used_at bigint NOT NULL,
      PRIMARY KEY (organization_id, image)
    )`.execute(db);
  await sql`CREATE INDEX image_uses_by_age ON image_uses (organization_id, last_used_at DESC)`.execute(db);
}

async function createPreviews(db: Database): Promise<void> {
  await sql`
    CREATE TABLE previews (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      sandbox_id text NOT NULL REFERENCES sandboxes (id),
      port integer NOT NULL,
      created_at bigint NOT NULL,
      expires_at bigint NOT NULL,
      revoked_at bigint
    )`.execute(db);
  await sql`CREATE INDEX previews_by_sandbox ON previews (sandbox_id, expires_at)`.execute(db);
  await sql`CREATE INDEX previews_by_age ON previews (expires_at)`.execute(db);
}

async function addHibernation(db: Database): Promise<void> {
  await sql`
    ALTER TABLE sandboxes
      ADD COLUMN origin text,
      ADD COLUMN auto_hibernate boolean NOT NULL DEFAULT false,
      ADD COLUMN hibernation_id text,
      ADD COLUMN hibernated_at bigint,
      ADD COLUMN hibernated_boot_ms double precision,
      ADD COLUMN hibernated_ms bigint NOT NULL DEFAULT 0`.execute(db);
  await sql`CREATE INDEX sandboxes_by_parent ON sandboxes (parent_id) WHERE parent_id IS NOT NULL`.execute(
    db,
  );
}

async function createSnapshots(db: Database): Promise<void> {
  await sql`
    CREATE TABLE snapshots (
      id text PRIMARY KEY,
      organization_id text NOT NULL REFERENCES organizations (id),
      status text NOT NULL CHECK (status IN ('creating', 'ready', 'deleting')),
      run_id text NOT NULL REFERENCES sandboxes (id),
      name text,
      image text NOT NULL,
      vcpus integer NOT NULL,
      mem_mib integer NOT NULL,
      disk_mib integer NOT NULL,
      size_bytes bigint NOT NULL,
      bound_to jsonb NOT NULL,
      created_at bigint NOT NULL,
      timeout_s integer NOT NULL,
      max_lifetime_s integer,
      labels jsonb NOT NULL,
      auto_hibernate boolean NOT NULL
    )`.execute(db);
  await sql`CREATE INDEX snapshots_by_age ON snapshots (organization_id, created_at DESC, id DESC)`.execute(
    db,
  );
  await sql`CREATE INDEX snapshots_by_sandbox ON snapshots (run_id)`.execute(db);
  await sql`CREATE INDEX snapshots_unsettled ON snapshots (status) WHERE status <> 'ready'`.execute(db);
}
