/** Reads the usage of one team in one statement, like the account of an organization. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { BILLABLE_COLUMNS, type BillableRow } from './consumption/stretch.ts';
import { readStorage, selectStorage, type StorageColumns } from './storage/storage-account.ts';
import type { UsedAccount } from './usage.ts';

interface AccountRow extends StorageColumns {
  ended_sandboxes: number;
  vcpu_ms: string;
  mem_mib_ms: string;
  live: BillableRow[];
}

/** Returns all zero for an unknown team. */
export async function readTeamAccount(db: Database, teamId: string): Promise<UsedAccount> {
  const { rows } = await sql<AccountRow>`
    SELECT
      coalesce(ended_sandboxes, 0) AS ended_sandboxes,
      coalesce(vcpu_ms, 0) AS vcpu_ms,
      coalesce(mem_mib_ms, 0) AS mem_mib_ms,
      (SELECT coalesce(json_agg(live), '[]') FROM (
        SELECT ${sql.join(BILLABLE_COLUMNS.map((name) => sql.ref(name)))} FROM sandboxes
        WHERE organization_id = team.organization_id AND team_id = team.id
          AND status IN ('creating', 'running', 'hibernated')) live) AS live,
      ${selectStorage(sql<boolean>`organization_id = team.organization_id AND team_id = team.id`)}
    FROM teams team
    LEFT JOIN team_accounts account ON account.team_id = team.id
    WHERE team.id = ${teamId}`.execute(db);
  const [row] = rows;
  return {
    endedSandboxes: row?.ended_sandboxes ?? 0,
    ended: { vcpuMs: BigInt(row?.vcpu_ms ?? 0), memMiBMs: BigInt(row?.mem_mib_ms ?? 0) },
    live: row?.live ?? [],
    storage: readStorage(row),
  };
}
