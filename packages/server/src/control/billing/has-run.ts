import { sql } from 'kysely';

/**
 * In SQL: whether a sandbox that has ended ever ran. A create that came to nothing has its record and its audit log, and is
 * in no history, no sum and no statement. What an earlier version billed is in all of them, whether or not it ran.
 */
export const HAS_RUN = sql<boolean>`(create_ms IS NOT NULL OR billed_ms > 0)`;
