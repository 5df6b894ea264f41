/** Computes the credit that an organization has left. Pure. */
import { COST_UNITS_PER_CENT, costOf } from '@coppice/contract';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { sumLive, type BillingAccount } from '../consumption/billing-accounts.ts';
import { addConsumption } from '../consumption/consumption.ts';

/** Returns the credit left in cost units; negative if more was used than granted. */
export function findCreditLeft(account: BillingAccount, now: HostMoment): bigint {
  return BigInt(account.grantedCents) * COST_UNITS_PER_CENT - findSpent(account, now);
}

/** Returns the organization's whole cost so far, in cost units. */
export function findSpent(account: BillingAccount, now: HostMoment): bigint {
  return costOf(addConsumption(sumLive(account, now), account.ended));
}
