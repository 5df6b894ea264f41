import { computeCostUnits, costCents, type BilledShape } from '../../../../contract/src/billing/cost.ts';

/** Returns the cost of sandboxes together, in cents. The sum is exact: only the result is rounded. */
export function sumCosts(entries: readonly BilledShape[]): number {
  return costCents(entries.reduce((sum, entry) => sum + computeCostUnits(entry), 0n));
}
