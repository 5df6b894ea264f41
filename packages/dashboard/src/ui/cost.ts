import { computeCostUnits, costCents } from '../../../contract/src/billing/cost.ts';
import type { SandboxInfo } from '../../../sdk/src/index.ts';

/** Returns the cost of a sandbox up to `now` (Unix milliseconds) in US cents, as the service will bill it. */
export function costSoFar(
  {
    vcpus,
    memMiB,
    billedMs,
    runningSince,
  }: Pick<SandboxInfo, 'vcpus' | 'memMiB' | 'billedMs' | 'runningSince'>,
  now: number,
): number {
  // The clocks of the browser and of the service may differ a little.
  const openMs = runningSince === null ? 0 : Math.max(0, Math.round(now - Date.parse(runningSince)));
  return costCents(computeCostUnits({ vcpus, memMiB, billedMs: (billedMs ?? 0) + openMs }));
}
