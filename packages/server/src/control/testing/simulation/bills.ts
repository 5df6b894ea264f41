/** Reads the bills of sandboxes from the database, and checks that their parts add up. */
import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../../db/database.ts';

export interface Bill {
  id: string;
  status: string;
  status_reason: string | null;
  billed_ms: number;
}

export interface Bills {
  /** Bills of the requested sandboxes. */
  bills: Bill[];
  /** A line for each bill that does not add up; none in a consistent service. */
  contradictions: string[];
}

/** Reads the bills of `ids`, or all by a linear scan. Compares the sums over all ended sandboxes in any case. */
export async function readBills(db: Database, ids: readonly string[] | 'all'): Promise<Bills> {
  const { rows: bills } = await sql<Bill>`
    SELECT id, status, status_reason, billed_ms FROM sandboxes WHERE ${isOneOf('id', ids)}`.execute(db);
  return {
    bills,
    contradictions: [
      ...(await findBilledTwice(db, ids)),
      ...(await findOtherSums(db, ids)),
      ...(await findOtherAccounts(db, 'billing_accounts', 'organization_id')),
      ...(await findOtherAccounts(db, 'team_accounts', 'team_id')),
    ],
  };
}

function isOneOf(column: string, ids: readonly string[] | 'all'): RawBuilder<boolean> {
  return ids === 'all' ? sql<boolean>`true` : sql<boolean>`${sql.ref(column)} = ANY(${ids}::text[])`;
}

/** Finds sandboxes of which two segments overlap. */
async function findBilledTwice(db: Database, ids: readonly string[] | 'all'): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT DISTINCT sandbox_id AS id FROM (
      SELECT sandbox_id, started_at,
        max(ended_at) OVER (PARTITION BY sandbox_id ORDER BY started_at, ended_at
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM billing_segments WHERE ${isOneOf('sandbox_id', ids)}) segment
    WHERE started_at < before`.execute(db);
  return rows.map(({ id }) => `${id} is billed twice for the same time`);
}

/** Finds ended sandboxes whose bill is not the sum of its parts. */
async function findOtherSums(db: Database, ids: readonly string[] | 'all'): Promise<string[]> {
  const { rows } = await sql<{ id: string; billed: string; sum: string }>`
    SELECT id, billed_ms::text AS billed, coalesce(sum(segment.ended_at - segment.started_at), 0)::text AS sum
    FROM sandboxes LEFT JOIN billing_segments segment ON segment.sandbox_id = id
    WHERE ${isOneOf('id', ids)} AND status IN ('destroyed', 'failed')
    GROUP BY id HAVING billed_ms <> coalesce(sum(segment.ended_at - segment.started_at), 0)`.execute(db);
  return rows.map(({ id, billed, sum }) => `${id} is billed for ${billed} ms, its parts are ${sum} ms`);
}

async function findOtherAccounts(
  db: Database,
  table: 'billing_accounts' | 'team_accounts',
  owner: 'organization_id' | 'team_id',
): Promise<string[]> {
  const { rows } = await sql<{ id: string; kept: string; sum: string }>`
    SELECT coalesce(account.id, ended.id)::text AS id, account.sums AS kept, ended.sums AS sum
    FROM (SELECT ${sql.ref(owner)} AS id, concat(vcpu_ms, ' ', mem_mib_ms) AS sums FROM ${sql.table(table)}
      WHERE vcpu_ms > 0) account
    FULL JOIN (
      SELECT ${sql.ref(owner)} AS id, concat(sum(vcpus * billed_ms), ' ', sum(mem_mib * billed_ms)) AS sums
      FROM sandboxes WHERE status IN ('destroyed', 'failed') AND billed_ms > 0 GROUP BY ${sql.ref(owner)}) ended
    ON account.id = ended.id WHERE account.sums IS DISTINCT FROM ended.sums`.execute(db);
  return rows.map(
    ({ id, kept, sum }) => `${table} ${id}: ${kept}, all that ended: ${sum} (vCPU and MiB × ms)`,
  );
}
