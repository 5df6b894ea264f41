/** Keeps new sandboxes away from runners, for the operator; their owners notice it within seconds. */
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from './database-time.ts';

export async function cordonRunner(db: Database, id: string): Promise<void> {
  await change(db, id, {
    cordoned_at: sql<number>`coalesce(cordoned_at, ${DATABASE_NOW})`,
    drain_until: null,
  });
}

export async function uncordonRunner(db: Database, id: string): Promise<void> {
  await change(db, id, { cordoned_at: null, drain_until: null });
}

/** Cordons the runner, and has its owner hibernate sandboxes that may be hibernated, for this time. */
export async function beginDrain(db: Database, id: string, forMs: number): Promise<void> {
  await change(db, id, {
    cordoned_at: sql<number>`coalesce(cordoned_at, ${DATABASE_NOW})`,
    drain_until: sql<number>`${DATABASE_NOW} + ${forMs}::bigint`,
  });
}

/** Lists the sandboxes whose VMs a runner has, or is about to have. */
export async function listAtRunner(db: Database, id: string): Promise<string[]> {
  const rows = await db
    .selectFrom('sandboxes')
    .select('id')
    .where('runner_id', '=', id)
    .where('status', 'in', ['creating', 'running'])
    .orderBy('id')
    .execute();
  return rows.map((row) => row.id);
}

async function change(
  db: Database,
  id: string,
  set: {
    cordoned_at: ReturnType<typeof sql<number>> | null;
    drain_until: ReturnType<typeof sql<number>> | null;
  },
): Promise<void> {
  const { numUpdatedRows } = await db.updateTable('runners').set(set).where('id', '=', id).executeTakeFirst();
  if (numUpdatedRows === 0n)
    throw new AppError('not_found', `there is no runner "${id}"; coppice admin runner list shows them`);
}
