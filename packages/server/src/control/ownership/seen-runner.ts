/** The moment when a runner was last seen with the VMs of all its sandboxes that ran: see sandbox/seen-round.ts. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

/** As in the row of a sandbox. */
export interface SeenRunner {
  boot_id: string | null;
  last_seen_at: number;
  last_seen_boot_ms: number | null;
}

/** Undefined for a runner that has not been seen so. */
export async function findSeen(db: Database, runnerId: string): Promise<SeenRunner | undefined> {
  const row = await db
    .selectFrom('runners')
    .select(['seen_at', 'seen_boot_id', 'seen_boot_ms'])
    .where('id', '=', runnerId)
    .executeTakeFirst();
  if (row === undefined || row.seen_at === null) return undefined;
  return { boot_id: row.seen_boot_id, last_seen_at: row.seen_at, last_seen_boot_ms: row.seen_boot_ms };
}

/** Writes the moments into the rows of the sandboxes. Call before these are given to another runner. */
export async function settleSeen(db: Database, runnerId: string): Promise<void> {
  await sql`
    UPDATE sandboxes SET last_seen_at = runners.seen_at, last_seen_boot_ms = runners.seen_boot_ms
    FROM runners
    WHERE runners.id = sandboxes.runner_id AND runners.id = ${runnerId}
      AND sandboxes.status = 'running' AND runners.seen_boot_id = sandboxes.boot_id
      AND runners.seen_boot_ms > sandboxes.last_seen_boot_ms`.execute(db);
}
