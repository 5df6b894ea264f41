/** Schema of billing: billed stretches, sums over ended sandboxes, credit, and limits of single organizations. */
import { sql, type Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

type Database = Kysely<unknown>;

export const billingMigration: Migration = {
  async up(db: Database) {
    await addBilledTime(db);
    await createSegments(db);
    await createBillingAccounts(db);
    await createCreditGrants(db);
    await createOrganizationLimits(db);
    await createHistoryIndexes(db);
  },
};

/**
 * The cost of an ended sandbox gives its billed time exactly. All time of a running sandbox is still to be billed. It
 * begins where the hibernations would have ended had they come first: the sum is right, only its place in the past is
 * unknown.
 */
async function addBilledTime(db: Database): Promise<void> {
  await sql`ALTER TABLE sandboxes ADD COLUMN billed_ms bigint NOT NULL DEFAULT 0`.execute(db);
  await sql`
    UPDATE sandboxes SET
      billed_ms = div(cost_units, 5120 * vcpus + 3 * mem_mib),
      hibernated_ms = uptime_ms - div(cost_units, 5120 * vcpus + 3 * mem_mib)
    WHERE ended_at IS NOT NULL`.execute(db);
  await sql`
    UPDATE sandboxes SET billed_ms = greatest(0, round(coalesce(
      hibernated_boot_ms - created_boot_ms, hibernated_at - created_at)) - hibernated_ms)
    WHERE status = 'hibernated'`.execute(db);
  await sql`ALTER TABLE sandboxes DROP COLUMN hibernated_boot_ms`.execute(db);
}

async function createSegments(db: Database): Promise<void> {
  await sql`
    CREATE TABLE billing_segments (
      sandbox_id text NOT NULL REFERENCES sandboxes (id),
      organization_id text NOT NULL,
      team_id text NOT NULL,
      started_at bigint NOT NULL,
      ended_at bigint NOT NULL,
      vcpus integer NOT NULL,
      mem_mib integer NOT NULL,
      PRIMARY KEY (sandbox_id, started_at),
      CHECK (ended_at > started_at)
    )`.execute(db);
  await sql`
    INSERT INTO billing_segments (sandbox_id, organization_id, team_id, started_at, ended_at, vcpus, mem_mib)
    SELECT id, organization_id, team_id, created_at, created_at + billed_ms, vcpus, mem_mib
    FROM sandboxes WHERE billed_ms > 0`.execute(db);
  await sql`CREATE INDEX billing_segments_by_end ON billing_segments (organization_id, ended_at)`.execute(db);
}

async function createBillingAccounts(db: Database): Promise<void> {
  await sql`
    CREATE TABLE billing_accounts (
      organization_id text PRIMARY KEY REFERENCES organizations (id),
      ended_sandboxes bigint NOT NULL DEFAULT 0,
      vcpu_ms numeric(40, 0) NOT NULL DEFAULT 0,
      mem_mib_ms numeric(40, 0) NOT NULL DEFAULT 0,
      exhausted_at bigint
    )`.execute(db);
  await sql`
    INSERT INTO billing_accounts (organization_id, ended_sandboxes, vcpu_ms, mem_mib_ms)
    SELECT organization_id, count(*), sum(vcpus * billed_ms), sum(mem_mib * billed_ms)
    FROM sandboxes WHERE ended_at IS NOT NULL GROUP BY organization_id`.execute(db);
}

/** Operators grant by SQL, so all columns but the organization and the amount have defaults. */
async function createCreditGrants(db: Database): Promise<void> {
  await sql`
    CREATE TABLE credit_grants (
      id text PRIMARY KEY DEFAULT 'grant' || left(md5(gen_random_uuid()::text), 20),
      organization_id text NOT NULL REFERENCES organizations (id),
      cents bigint NOT NULL,
      kind text NOT NULL DEFAULT 'operator' CHECK (kind IN ('welcome', 'before', 'operator')),
      note text NOT NULL DEFAULT '',
      created_at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    )`.execute(db);
  await sql`CREATE INDEX credit_grants_by_organization ON credit_grants (organization_id)`.execute(db);
  await sql`
    CREATE UNIQUE INDEX credit_grants_once ON credit_grants (organization_id, kind)
    WHERE kind IN ('welcome', 'before')`.execute(db);
}

async function createOrganizationLimits(db: Database): Promise<void> {
  await sql`
    CREATE TABLE organization_limits (
      organization_id text PRIMARY KEY REFERENCES organizations (id),
      sandboxes integer CHECK (sandboxes >= 0),
      vcpus integer CHECK (vcpus >= 0),
      mem_mib bigint CHECK (mem_mib >= 0),
      open_requests integer CHECK (open_requests >= 0),
      open_streams integer CHECK (open_streams >= 0),
      snapshot_bytes bigint CHECK (snapshot_bytes >= 0),
      rate_limit_rps integer CHECK (rate_limit_rps >= 0),
      rate_limit_burst integer CHECK (rate_limit_burst >= 0)
    )`.execute(db);
}

async function createHistoryIndexes(db: Database): Promise<void> {
  await sql`
    CREATE INDEX sandboxes_ended ON sandboxes (organization_id, ended_at DESC, id DESC)
    WHERE ended_at IS NOT NULL`.execute(db);
  await sql`
    CREATE INDEX sandboxes_ended_of_image ON sandboxes (organization_id, image text_pattern_ops, ended_at DESC, id DESC)
    WHERE ended_at IS NOT NULL`.execute(db);
  await sql`CREATE INDEX sandboxes_by_label ON sandboxes USING gin (labels jsonb_path_ops)`.execute(db);
  await sql`
    CREATE INDEX sandboxes_alive_of ON sandboxes (organization_id)
    WHERE status IN ('creating', 'running', 'hibernated')`.execute(db);
}
