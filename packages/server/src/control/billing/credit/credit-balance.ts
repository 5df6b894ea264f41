/** Computes the credit that an organization has left. Pure. */
import { BYTE_MS_PER_COST_UNIT, COST_UNITS_PER_CENT, costOf } from '@coppice/contract';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { sumLive, type BillingAccount } from '../consumption/billing-accounts.ts';
import { sumStorage } from '../storage/storage-account.ts';
import { addConsumption } from '../consumption/consumption.ts';

/** Returns the credit left in cost units; negative if more was used than granted. */
export function findCreditLeft(account: BillingAccount, now: HostMoment): bigint {
  return BigInt(account.grantedCents) * COST_UNITS_PER_CENT - findSpent(account, now);
}

/** Returns the organization's whole cost so far, in cost units, rounded down. */
export function findSpent(account: BillingAccount, now: HostMoment): bigint {
  const stored = sumStorage(account.storage, now.wallMs) / BYTE_MS_PER_COST_UNIT;
  return costOf(addConsumption(sumLive(account, now), account.ended)) + stored;
}
