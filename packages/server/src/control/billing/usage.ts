/** Builds the usage of an organization, or of one of its teams, up to a moment. Pure. */
import { costCents, costOf, gbHours, type Consumption, type UsageRecord } from '@coppice/contract';
import type { HostMoment } from '../../lib/host-clock.ts';
import { sumLive } from './consumption/billing-accounts.ts';
import { addConsumption, showConsumption } from './consumption/consumption.ts';
import type { Balance } from './credit/credit.ts';
import { sumStorage, type StorageAccount } from './storage/storage-account.ts';
import type { BillableRow } from './consumption/stretch.ts';

/** The consumption of ended sandboxes, and the rows of live ones. */
export interface UsedAccount {
  endedSandboxes: number;
  ended: Consumption;
  live: readonly BillableRow[];
  storage: StorageAccount;
}

export function buildUsage(account: UsedAccount, now: HostMoment): UsageRecord {
  const live = sumLive(account, now);
  const all = addConsumption(live, account.ended);
  const { cpu_seconds, mem_seconds } = showConsumption(all);
  const byteMs = sumStorage(account.storage, now.wallMs);
  return {
    active_sandboxes: account.live.length,
    history_sandboxes: account.endedSandboxes,
    active_cost_cents: costCents(costOf(live)),
    history_cost_cents: costCents(costOf(account.ended)),
    total_cost_cents: costCents(costOf(all), byteMs),
    cpu_seconds,
    mem_seconds,
    disk_gb_hours: gbHours(byteMs),
    disk_cost_cents: costCents(0n, byteMs),
    as_of: new Date(now.wallMs).toISOString(),
  };
}

export function showCredit({
  account,
  leftUnits,
}: Balance): Pick<UsageRecord, 'credit_cents' | 'credit_left_cents'> {
  return { credit_cents: account.grantedCents, credit_left_cents: costCents(leftUnits) };
}
