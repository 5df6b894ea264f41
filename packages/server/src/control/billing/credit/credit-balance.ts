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

/**
 * Returns the credit left as it is once the welcome credit is granted, which is done when the balance is first needed. The
 * cost before is settled then, see {@link findSpentCents}.
 */
export function findCreditWithWelcome(
  account: BillingAccount,
  now: HostMoment,
  welcomeCents: number,
): bigint {
  const left = findCreditLeft(account, now);
  if (account.hasWelcome) return left;
  return left + BigInt(welcomeCents + findSpentCents(account, now)) * COST_UNITS_PER_CENT;
}

/** Returns the organization's whole cost so far in cents, rounded up. */
export function findSpentCents(account: BillingAccount, now: HostMoment): number {
  return Number((findSpent(account, now) + COST_UNITS_PER_CENT - 1n) / COST_UNITS_PER_CENT);
}

/** Returns the organization's whole cost so far, in cost units, rounded down. */
export function findSpent(account: BillingAccount, now: HostMoment): bigint {
  const stored = sumStorage(account.storage, now.wallMs) / BYTE_MS_PER_COST_UNIT;
  return costOf(addConsumption(sumLive(account, now), account.ended)) + stored;
}
