import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from './database-time.ts';

/** Returns whether a control may still be working: its lease is not over, and no other control has fenced it. */
export async function isControlAlive(db: Database, id: string): Promise<boolean> {
  const row = await db
    .selectFrom('controls')
    .select('id')
    .where('id', '=', id)
    .where('is_fenced', '=', false)
    .where('lease_until', '>', DATABASE_NOW)
    .executeTakeFirst();
  return row !== undefined;
}
