/** Compares the changes of sandboxes' states in SQL, whichever code wrote them, with the events that report them. */
import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';
import type { Pair } from './agreement.ts';

/** Each change has one event, and each event one change. Needs `beginStateLog`. Returns only what differs. */
export async function compareEvents(db: Database): Promise<Pair[]> {
  const { rows } = await sql<{ side: 'change' | 'event'; name: string }>`
    WITH changes AS (
      SELECT id || ' ' || CASE
        WHEN "to" = 'running' AND "from" = 'creating' THEN 'sandbox.created'
        WHEN "to" = 'running' THEN 'sandbox.resumed'
        ELSE 'sandbox.' || "to"
      END AS name
      FROM state_log WHERE "from" <> "to"
    ), told AS (
      SELECT sandbox_id || ' ' || type AS name
      FROM (SELECT sandbox_id, type FROM events UNION ALL SELECT sandbox_id, type FROM pending_events) AS all_events
      WHERE type IN ('sandbox.created', 'sandbox.resumed', 'sandbox.hibernated', 'sandbox.destroyed', 'sandbox.failed')
    )
    SELECT 'change' AS side, name FROM (SELECT name FROM changes EXCEPT ALL SELECT name FROM told) AS untold
    UNION ALL
    SELECT 'event', name FROM (SELECT name FROM told EXCEPT ALL SELECT name FROM changes) AS invented`.execute(
    db,
  );
  const of = (wanted: string): string[] => rows.filter(({ side }) => side === wanted).map(({ name }) => name);
  return [['changes without an event', of('change'), 'events without a change', of('event')]];
}
