/**
 * Cost of a sandbox, exact. `cost_cents = (0.025·vcpus + 0.015·GiB) · 100 / 3600 · billed seconds` becomes, with
 * integer milliseconds and MiB, `(5120·vcpus + 3·memMiB) · billedMs / 7 372 800 000`. The numerator is kept as an
 * integer, so that sums of any length stay exact; only what is shown is rounded, once.
 */
export const COST_UNITS_PER_CENT = 7_372_800_000n;

const SHOWN_DECIMALS = 12n;

export interface BilledShape {
  vcpus: number;
  memMiB: number;
  billedMs: number;
}

/** Cost in units of 1/7 372 800 000 cent. All three must be non-negative safe integers, else RangeError. */
export function computeCostUnits({ vcpus, memMiB, billedMs }: BilledShape): bigint {
  for (const [name, value] of Object.entries({ vcpus, memMiB, billedMs })) {
    if (!Number.isSafeInteger(value) || value < 0)
      throw new RangeError(`${name} is ${value}, not a whole number`);
  }
  const time = BigInt(billedMs);
  return costOf({ vcpuMs: BigInt(vcpus) * time, memMiBMs: BigInt(memMiB) * time });
}

/** Billed time of any number of sandboxes, weighed by their vCPUs and by their memory. */
export interface Consumption {
  vcpuMs: bigint;
  memMiBMs: bigint;
}

/** The cost is linear in both, so that the cost of a sum is the sum of the costs, to the last unit. */
export function costOf({ vcpuMs, memMiBMs }: Consumption): bigint {
  return 5120n * vcpuMs + 3n * memMiBMs;
}

/** Cents as a number for JSON, rounded half up to 12 decimals (a millionth of a millionth of a cent). */
export function costCents(units: bigint): number {
  return Number(formatCents(units));
}

/** The same as text, with all its decimals. What is owed is negative. */
export function formatCents(units: bigint): string {
  if (units < 0n) return `-${formatCents(-units)}`;
  const scale = 10n ** SHOWN_DECIMALS;
  const scaled = (units * scale * 2n + COST_UNITS_PER_CENT) / (COST_UNITS_PER_CENT * 2n);
  const fraction = (scaled % scale).toString().padStart(Number(SHOWN_DECIMALS), '0');
  return `${scaled / scale}.${fraction}`;
}
