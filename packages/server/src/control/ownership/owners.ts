import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from './database-time.ts';

/** A control that owns a runner and holds its lease. */
export interface Owner {
  id: string;
  /** `host:port` of its internal listener. */
  address: string;
}

/** Finds the control that answers for a runner. Undefined while none does, or none that other controls reach. */
export async function findOwner(db: Database, runnerId: string): Promise<Owner | undefined> {
  const row = await db
    .selectFrom('runners')
    .innerJoin('controls', 'controls.id', 'runners.owner')
    .select(['controls.id', 'controls.address'])
    .where('runners.id', '=', runnerId)
    .where('controls.is_fenced', '=', false)
    .where('controls.lease_until', '>', DATABASE_NOW)
    .executeTakeFirst();
  return row === undefined || row.address === null ? undefined : { id: row.id, address: row.address };
}
