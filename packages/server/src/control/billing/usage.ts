/** The rollup of an organization, up to a moment. Pure. */
import { costCents, costOf, type UsageRecord } from '@coppice/contract';
import { sumLive } from './billing-accounts.ts';
import { addConsumption, showConsumption } from './consumption.ts';
import type { Balance } from './credit.ts';

export function buildUsage({ account, leftUnits, now }: Balance, hasCredit: boolean): UsageRecord {
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
    ...(hasCredit
      ? {
          credit_cents: account.grantedCents,
          credit_left_cents: costCents(leftUnits),
        }
      : {}),
    as_of: new Date(now.wallMs).toISOString(),
  };
}
