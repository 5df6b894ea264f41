import { sql } from 'kysely';

/**
 * In SQL: whether a sandbox that has ended ever ran. A create that failed keeps its record and its audit log, and is in no
 * history, count or statement. A sandbox that an earlier version billed is in all of them, even if it never ran.
 */
export const HAS_RUN = sql<boolean>`(create_ms IS NOT NULL OR billed_ms > 0)`;
