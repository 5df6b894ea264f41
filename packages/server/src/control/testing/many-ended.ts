/** Hundreds of thousands of ended sandboxes, as the service would have written them. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** Keeps each statement well within its deadline. */
const CHUNK = 5_000;

/**
 * Inserts ended sandboxes of the first organization: one every 30 s up to now, each of 1 to 100 s, one in a thousand
 * with the label `rare`.
 */
export async function insertEnded(db: Database, count: number): Promise<void> {
  for (let from = 0; from < count; from += CHUNK) await insertChunk(db, from, Math.min(count, from + CHUNK));
  await sql`
    INSERT INTO billing_accounts (organization_id, ended_sandboxes, vcpu_ms, mem_mib_ms)
    SELECT organization_id, count(*), sum(vcpus * billed_ms), sum(mem_mib * billed_ms)
    FROM sandboxes WHERE ended_at IS NOT NULL GROUP BY organization_id`.execute(db);
  for (const table of ['sandboxes', 'billing_segments']) await sql`ANALYZE ${sql.table(table)}`.execute(db);
}

async function insertChunk(db: Database, from: number, to: number): Promise<void> {
  await sql`
    WITH ended AS (INSERT INTO sandboxes (id, organization_id, team_id, status, status_reason, image, region, vcpus, mem_mib, disk_mib,
      timeout_s, labels, create_ms, created_at, last_active_at, last_seen_at, ended_at, uptime_ms, billed_ms, cost_units)
    SELECT 'run' || left(md5('ended ' || index), 20), team.organization_id, team.id, 'destroyed', 'requested',
      'docker.io/library/image-' || index % 50 || ':1@sha256:' || md5('a') || md5('b'), 'us', vcpus, 512, 1024, 300,
      jsonb_build_object('job', CASE WHEN index % 1000 = 0 THEN 'rare' ELSE 'common' END, 'index', index::text),
      100, began, began, began, began + ms, ms, ms, (5120 * vcpus + 3 * 512) * ms
    FROM (SELECT id, organization_id FROM teams ORDER BY created_at LIMIT 1) team,
      generate_series(${from}::int, ${to - 1}::int) AS index,
      LATERAL (SELECT 1 + index % 4 AS vcpus, ((1 + index % 100) * 1000 + index % 7)::bigint AS ms,
        (extract(epoch FROM now()) * 1000)::bigint - index::bigint * 30000 - 200000 AS began) made
    RETURNING *)
    INSERT INTO billing_segments (sandbox_id, organization_id, team_id, started_at, ended_at, vcpus, mem_mib)
    SELECT id, organization_id, team_id, created_at, created_at + billed_ms, vcpus, mem_mib FROM ended`.execute(
    db,
  );
}
