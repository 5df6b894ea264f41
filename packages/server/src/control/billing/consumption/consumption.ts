/** Billed time, weighted by vCPUs and memory, and summed. Pure. */
import { costCents, costOf, type Consumption } from '@coppice/contract';

export const NOTHING_USED: Consumption = { vcpuMs: 0n, memMiBMs: 0n };

export function consumptionOf(vcpus: number, memMiB: number, billedMs: number): Consumption {
  const time = BigInt(billedMs);
  return { vcpuMs: BigInt(vcpus) * time, memMiBMs: BigInt(memMiB) * time };
}

export function addConsumption(a: Consumption, b: Consumption): Consumption {
  return { vcpuMs: a.vcpuMs + b.vcpuMs, memMiBMs: a.memMiBMs + b.memMiBMs };
}

/** Converts a consumption to the fields of API answers. */
export function showConsumption(used: Consumption): {
  cpu_seconds: number;
  mem_seconds: number;
  cost_cents: number;
} {
  return {
    cpu_seconds: Number(used.vcpuMs) / 1000,
    mem_seconds: Number(used.memMiBMs) / 1_024_000,
    cost_cents: costCents(costOf(used)),
  };
}
