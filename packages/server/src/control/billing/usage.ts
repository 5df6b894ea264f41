/** Builds the usage of an organization, or of one of its teams, up to a moment. Pure. */
import { costCents, costOf, type Consumption, type UsageRecord } from '@coppice/contract';
import type { HostMoment } from '../../lib/host-clock.ts';
import { sumLive } from './consumption/billing-accounts.ts';
import { addConsumption, showConsumption } from './consumption/consumption.ts';
import type { Balance } from './credit/credit.ts';
import type { BillableRow } from './consumption/stretch.ts';

/** The consumption of ended sandboxes, and the rows of live ones. */
export interface UsedAccount {
  endedSandboxes: number;
  ended: Consumption;
  live: readonly BillableRow[];
}

export function buildUsage(account: UsedAccount, now: HostMoment): UsageRecord {
  const live = sumLive(account, now);
  const { cpu_seconds, mem_seconds, cost_cents } = showConsumption(addConsumption(live, account.ended));
  return {
    active_sandboxes: account.live.length,
    history_sandboxes: account.endedSandboxes,
    active_cost_cents: costCents(costOf(live)),
    history_cost_cents: costCents(costOf(account.ended)),
    total_cost_cents: cost_cents,
    cpu_seconds,
    mem_seconds,
    as_of: new Date(now.wallMs).toISOString(),
  };
}

export function showCredit({
  account,
  leftUnits,
}: Balance): Pick<UsageRecord, 'credit_cents' | 'credit_left_cents'> {
  return { credit_cents: account.grantedCents, credit_left_cents: costCents(leftUnits) };
}
