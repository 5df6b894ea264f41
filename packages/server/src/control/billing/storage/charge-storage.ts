/**
 * Bills what disks store in the object store. A measurement holds until the next one: the time in between, multiplied
 * by its bytes, is added to the month in which it lies. Sums are whole byte milliseconds, so nothing is lost to
 * rounding.
 *
 *     measured 5 MB                 measured 7 MB        end of the month         measured 6 MB
 *        ├────── 5 MB · time ──────────┼──── 7 MB · time ──────┼──── 7 MB · time ──────┤
 */
import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';
import { splitByMonth } from '../months/split-by-month.ts';

/**
 * Bills a disk from the last time until `now`. Does nothing if it is not `ready`, or if the clock was set back. Call
 * in a transaction.
 */
export async function chargeStorage(transaction: Database, id: string, now: number): Promise<void> {
  const disk = await transaction
    .selectFrom('disks')
    .select(['id', 'organization_id', 'team_id', 'name', 'stored_bytes', 'stored_at'])
    .where('id', '=', id)
    .where('status', '=', 'ready')
    .forUpdate()
    .executeTakeFirst();
  if (disk === undefined || disk.stored_at >= now) return;
  const { organization_id, team_id, name, stored_bytes } = disk;
  for (const { month, ms } of splitByMonth(disk.stored_at, now)) {
    const byteMs = (BigInt(stored_bytes) * BigInt(ms)).toString();
    if (byteMs === '0') continue;
    await transaction
      .insertInto('disk_storage')
      .values({ disk_id: id, month, organization_id, team_id, name, byte_ms: byteMs })
      .onConflict((conflict) =>
        conflict
          .columns(['disk_id', 'month'])
          .doUpdateSet({ byte_ms: sql<string>`disk_storage.byte_ms + excluded.byte_ms` }),
      )
      .execute();
  }
  await transaction.updateTable('disks').set({ stored_at: now }).where('id', '=', id).execute();
}
