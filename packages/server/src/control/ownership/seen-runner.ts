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
  return (await listSeen(db, [runnerId])).get(runnerId);
}

/** Returns the moments of those of the runners that have been seen so, by their ids. */
export async function listSeen(db: Database, runnerIds: readonly string[]): Promise<Map<string, SeenRunner>> {
  if (runnerIds.length === 0) return new Map();
  const rows = await db
    .selectFrom('runners')
    .select(['id', 'seen_at', 'seen_boot_id', 'seen_boot_ms'])
    .where('id', 'in', [...runnerIds])
    .execute();
  return new Map(
    rows.flatMap(({ id, seen_at: last_seen_at, seen_boot_id: boot_id, seen_boot_ms: last_seen_boot_ms }) =>
      last_seen_at === null ? [] : [[id, { boot_id, last_seen_at, last_seen_boot_ms }] as const],
    ),
  );
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
