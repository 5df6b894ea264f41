/** Reads the usage and grants of organizations in one statement: no sandbox is counted twice or missed. */
import type { Consumption } from '@coppice/contract';
import { sql } from 'kysely';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { Database } from '../../db/database.ts';
import {
  readStorage,
  selectStorage,
  type StorageAccount,
  type StorageColumns,
} from '../storage/storage-account.ts';
import { addConsumption, consumptionOf, NOTHING_USED } from './consumption.ts';
import { BILLABLE_COLUMNS, findBilledToDateMs, type BillableRow } from './stretch.ts';

export interface BillingAccount {
  organizationId: string;
  endedSandboxes: number;
  ended: Consumption;
  live: readonly BillableRow[];
  storage: StorageAccount;
  grantedCents: number;
  hasWelcome: boolean;
  /** Unix milliseconds; null while there is credit, or before the first check. */
  exhaustedAt: number | null;
}

interface AccountRow extends StorageColumns {
  organization_id: string;
  ended_sandboxes: number;
  vcpu_ms: string;
  mem_mib_ms: string;
  exhausted_at: number | null;
  granted_cents: number;
  has_welcome: boolean;
  live: BillableRow[];
}

/** Returns the accounts of those organizations that exist. */
export async function readAccounts(
  db: Database,
  organizationIds: readonly string[],
): Promise<BillingAccount[]> {
  const { rows } = await sql<AccountRow>`
    SELECT
      organization.id AS organization_id,
      coalesce(ended_sandboxes, 0) AS ended_sandboxes,
      coalesce(vcpu_ms, 0) AS vcpu_ms,
      coalesce(mem_mib_ms, 0) AS mem_mib_ms,
      exhausted_at,
      (SELECT coalesce(sum(cents), 0)::bigint FROM credit_grants
        WHERE organization_id = organization.id) AS granted_cents,
      EXISTS (SELECT FROM credit_grants
        WHERE organization_id = organization.id AND kind = 'welcome') AS has_welcome,
      (SELECT coalesce(json_agg(live), '[]') FROM (
        SELECT ${sql.join(BILLABLE_COLUMNS.map((name) => sql.ref(name)))} FROM sandboxes
        WHERE organization_id = organization.id AND status IN ('creating', 'running', 'hibernated')) live) AS live,
      ${selectStorage(sql<boolean>`organization_id = organization.id`)}
    FROM organizations organization
    LEFT JOIN billing_accounts account ON account.organization_id = organization.id
    WHERE organization.id = ANY(${[...organizationIds]})`.execute(db);
  return rows.map(toAccount);
}

/** Sums the consumption of an account's live sandboxes up to `now`. */
export function sumLive({ live }: Pick<BillingAccount, 'live'>, now: HostMoment): Consumption {
  return live
    .map((row) => consumptionOf(row.vcpus, row.mem_mib, findBilledToDateMs(row, now)))
    .reduce(addConsumption, NOTHING_USED);
}

function toAccount(row: AccountRow): BillingAccount {
  return {
    organizationId: row.organization_id,
    endedSandboxes: row.ended_sandboxes,
    ended: { vcpuMs: BigInt(row.vcpu_ms), memMiBMs: BigInt(row.mem_mib_ms) },
    live: row.live,
    storage: readStorage(row),
    grantedCents: row.granted_cents,
    hasWelcome: row.has_welcome,
    exhaustedAt: row.exhausted_at,
  };
}
