/** Thousands of live sandboxes without a VM. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/**
 * Inserts hibernated sandboxes of the first team, named `job-00000`, `job-00001` and so on, each a second older than the
 * one before. A control reads them when it starts.
 */
export async function insertHibernated(db: Database, count: number): Promise<void> {
  await sql`
    INSERT INTO sandboxes (id, organization_id, team_id, status, name, image, region, vcpus, mem_mib, disk_mib,
      timeout_s, labels, create_ms, created_at, last_active_at, last_seen_at, hibernation_id, hibernated_at, billed_ms)
    SELECT 'run' || left(md5(index::text), 20), team.organization_id, team.id, 'hibernated',
      'job-' || lpad(index::text, 5, '0'), 'docker.io/library/image-' || index % 50 || ':1@sha256:' || md5('a') || md5('b'),
      'us', 1, 512, 1024, 300, jsonb_build_object('index', index::text), 100, began, began, began,
      'hib' || left(md5(index::text), 20), began + 60000, 60000
    FROM (SELECT id, organization_id FROM teams ORDER BY created_at LIMIT 1) team,
      generate_series(0, ${count - 1}::int) AS index,
      LATERAL (SELECT (extract(epoch FROM now()) * 1000)::bigint - 200000 - index::bigint * 1000 AS began) made`.execute(
    db,
  );
}
