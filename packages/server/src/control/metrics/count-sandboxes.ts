import type { SandboxState } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { IS_LIVE_CONTROL } from '../ownership/live-controls.ts';
import { IS_LIVE } from '../sandbox/record/live-states.ts';

/**
 * Counts the sandboxes that have not ended, of all organizations, on the runners that a control owns. The leading control also
 * counts those that no live control owns. So the sum over all live controls has each sandbox once.
 */
export async function countSandboxes(db: Database, controlId: string): Promise<Map<SandboxState, number>> {
  const { rows } = await sql<{ status: SandboxState; count: number }>`
    WITH live AS MATERIALIZED (SELECT id, started_at FROM controls WHERE ${IS_LIVE_CONTROL}),
      this AS (
        SELECT id, id = (SELECT id FROM live ORDER BY started_at, id LIMIT 1) AS is_leading
        FROM live WHERE id = ${controlId}),
      counted AS (
        SELECT runners.id FROM runners, this
        WHERE runners.owner = this.id
          OR (is_leading AND (runners.owner IS NULL OR runners.owner NOT IN (SELECT id FROM live))))
    SELECT status, count(*) FROM (
      SELECT status FROM sandboxes WHERE ${IS_LIVE} AND runner_id = ANY (ARRAY (SELECT id FROM counted))
      UNION ALL
      SELECT status FROM sandboxes WHERE ${IS_LIVE} AND runner_id IS NULL AND (SELECT is_leading FROM this)) found
    GROUP BY status`.execute(db);
  return new Map(rows.map(({ status, count }) => [status, count]));
}
