/**
 * Decides which control leads. That one does the work that belongs to no runner, such as deleting old records. It is the live,
 * unfenced control that has started first. Each looks for itself when it renews its lease:
 *
 *     lease renewed ─► this is the first live row in `controls` ─► leads ─► until the next renewal, or the end of the lease here
 *
 * A control whose lease was over begins to lead with its second renewal, when the others have seen its first. Two may still lead
 * for a moment. So leadership only keeps controls from doing the same work twice: rows and their locks keep the result right.
 */
import { sql } from 'kysely';
import { DATABASE_NOW } from './database-time.ts';

export interface Leadership {
  readonly isLeading: boolean;
}

/** The id of the control that leads, or null. In the statement that renews a lease this is as before the renewal. */
export const LEADER = sql<string | null>`(
  SELECT first.id FROM controls AS first
  WHERE NOT first.is_fenced AND first.lease_until > ${DATABASE_NOW}
  ORDER BY first.started_at, first.id LIMIT 1)`;
