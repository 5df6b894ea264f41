import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../db/database.ts';
import { isControlId } from './control-id.ts';
import { IS_LIVE_CONTROL } from './live-controls.ts';
import { DATABASE_NOW } from './database-time.ts';

/** For this long requests wait for a control that takes a runner. After that they are sent to it all the same. */
const TAKING_MS = 10_000;

/** A runner that was heard within this time answers: owners note it every 10 s. */
export const HEARD_MS = 30_000;

/** SQL for `runners`. */
export const IS_ANSWERING = sql<boolean>`(runners.heard_at > ${DATABASE_NOW} - ${HEARD_MS}::bigint)`;

/** A control that holds its lease, as the owner of a runner or for itself. */
export interface Owner {
  id: string;
  /** `host:port` of its internal listener. */
  address: string;
}

/** Value of `taking_until` for a runner that begins to get another owner. */
export function takingUntil(): RawBuilder<number> {
  return sql<number>`${DATABASE_NOW} + ${TAKING_MS}::bigint`;
}

/**
 * Finds the control that answers for a runner, or the one with the id. Undefined while none does, or none that other controls reach,
 * and while the runner is taken or handed over.
 */
export async function findOwner(db: Database, id: string): Promise<Owner | undefined> {
  const row = await (isControlId(id) ? findControl(db, id) : findOwnerOfRunner(db, id));
  return row === undefined || row.address === null ? undefined : { id: row.id, address: row.address };
}

type Found = Promise<{ id: string; address: string | null } | undefined>;

function findOwnerOfRunner(db: Database, runnerId: string): Found {
  return db
    .selectFrom('runners')
    .innerJoin('controls', 'controls.id', 'runners.owner')
    .select(['controls.id', 'controls.address'])
    .where('runners.id', '=', runnerId)
    .where(IS_LIVE_CONTROL)
    .where(sql<boolean>`coalesce(taking_until, 0) < ${DATABASE_NOW}`)
    .executeTakeFirst();
}

function findControl(db: Database, id: string): Found {
  return db
    .selectFrom('controls')
    .select(['id', 'address'])
    .where('id', '=', id)
    .where(IS_LIVE_CONTROL)
    .executeTakeFirst();
}
