/** Continues the ids of events after a backup was restored. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** More than there can be events in a millisecond, so that ids from before the restore are never given again. */
const IDS_PER_MS = 100;

/**
 * Lets the ids continue far behind all that were given after the backup was taken. Else a reader that has such an id
 * would take the events that get it next for those that it has seen.
 */
export async function skipIds(db: Database, nowMs: number): Promise<void> {
  const { rows } = await sql<{ last_id: number }>`
    SELECT coalesce(max(last_id), 0)::bigint AS last_id FROM event_counter`.execute(db);
  const after_id = rows[0]?.last_id ?? 0;
  const through_id = Math.max(after_id + 1, Math.floor(nowMs) * IDS_PER_MS);
  await db.insertInto('event_gaps').values({ after_id, through_id }).execute();
  await db
    .insertInto('event_counter')
    .values({ last_id: through_id })
    .onConflict((conflict) => conflict.column('is_only').doUpdateSet({ last_id: through_id }))
    .execute();
}
