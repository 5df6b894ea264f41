/** Reads the data that disks stored in a month, as of one moment: billed parts, and those of disks that exist now. */
import { sql } from 'kysely';
import { isWithinSql, type Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';

export interface DiskSum {
  diskId: string;
  name: string;
  teamId: string;
  byteMs: bigint;
}

export interface MonthOfDisks {
  reach: Reach;
  month: { name: string; from: number; to: number };
  nowMs: number;
}

/** Returns the disks that stored anything, in the order of their names. */
export async function readMonthOfDisks(
  db: Database,
  { reach, month, nowMs }: MonthOfDisks,
): Promise<DiskSum[]> {
  const { name, from, to } = month;
  const until = Math.min(to, Math.floor(nowMs));
  const { rows } = await sql<Omit<DiskSum, 'byteMs'> & { byteMs: string }>`
    SELECT disk_id AS "diskId", name, team_id AS "teamId", sum(byte_ms)::text AS "byteMs" FROM (
      SELECT disk_id, name, team_id, byte_ms FROM disk_storage
      WHERE ${isWithinSql(reach, 'disk_storage')} AND month = ${name}
      UNION ALL
      SELECT id, name, team_id, stored_bytes::numeric * (${until}::bigint - greatest(stored_at, ${from}::bigint))
      FROM disks
      WHERE ${isWithinSql(reach, 'disks')} AND status = 'ready' AND stored_bytes > 0
        AND greatest(stored_at, ${from}::bigint) < ${until}::bigint) part
    GROUP BY disk_id, name, team_id ORDER BY name COLLATE "C", disk_id`.execute(db);
  return rows.map(({ diskId, name: disk, teamId, byteMs }) => {
    return { diskId, name: disk, teamId, byteMs: BigInt(byteMs) };
  });
}
