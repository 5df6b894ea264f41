/** What is left of an organization's credit. Pure. */
import { COST_UNITS_PER_CENT, costOf } from '@coppice/contract';
import type { HostMoment } from '../../lib/host-clock.ts';
import { sumLive, type BillingAccount } from './billing-accounts.ts';
import { addConsumption } from './consumption.ts';

/** In cost units; below 0 when more was used than granted. */
export function findCreditLeft(account: BillingAccount, now: HostMoment): bigint {
  return BigInt(account.grantedCents) * COST_UNITS_PER_CENT - findSpent(account, now);
}

/** All that it ever cost, in cost units. */
export function findSpent(account: BillingAccount, now: HostMoment): bigint {
  return costOf(addConsumption(sumLive(account, now), account.ended));
}
