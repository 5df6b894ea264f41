import { sql } from 'kysely';

/**
 * SQL condition: an ended sandbox ran at some time. A failed create keeps its record and its audit log, but is in no
 * history, count or statement. A sandbox that an earlier version billed is in all of them, even if it never ran.
 */
export const HAS_RUN = sql<boolean>`(create_ms IS NOT NULL OR billed_ms > 0)`;
