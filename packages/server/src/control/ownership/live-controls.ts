/** Controls that may still be working: their leases are not over, and no other control has fenced them. */
import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from './database-time.ts';
import { LEADER } from './leadership.ts';

/** SQL for `controls`. */
export const IS_LIVE_CONTROL = sql<boolean>`(NOT controls.is_fenced AND controls.lease_until > ${DATABASE_NOW})`;

/** Returns whether a control may still be working. */
export async function isControlAlive(db: Database, id: string): Promise<boolean> {
  const row = await db
    .selectFrom('controls')
    .select('id')
    .where('id', '=', id)
    .where(IS_LIVE_CONTROL)
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * Whether the control that a column names may still be working. False for null: the row is of an earlier version, or its control
 * has given it up.
 */
export function isAliveSql(column: string): RawBuilder<boolean> {
  return sql<boolean>`EXISTS (
    SELECT FROM controls
    WHERE controls.id = ${sql.ref(column)} AND ${IS_LIVE_CONTROL})`;
}

/** Whether this control owns the runner that a column names. Null stands for a runner from before runners had ids. */
export function isOwnRunnerSql(column: string, control: string): RawBuilder<boolean> {
  return sql<boolean>`(${sql.ref(column)} IS NULL OR ${sql.ref(column)} IN (
    SELECT runners.id FROM runners WHERE runners.owner = ${control}))`;
}

export interface ListedControl {
  id: string;
  version: string;
  /** `host:port` at which other controls reach it; null for one that is alone. */
  address: string | null;
  /** Unix milliseconds. */
  startedAt: number;
  isLeading: boolean;
  /** How many it owns. */
  runners: number;
}

/** Lists the controls that are alive, the first to start first. */
export async function listLiveControls(db: Database): Promise<ListedControl[]> {
  return db
    .selectFrom('controls')
    .select(['id', 'version', 'address', 'started_at as startedAt'])
    .select(sql<boolean>`id = ${LEADER}`.as('isLeading'))
    .select(sql<number>`(SELECT count(*) FROM runners WHERE owner = controls.id)`.as('runners'))
    .where(IS_LIVE_CONTROL)
    .orderBy('started_at')
    .orderBy('id')
    .execute();
}
