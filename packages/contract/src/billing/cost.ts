/**
 * Exact cost of a sandbox. `cost_cents = (0.025·vcpus + 0.015·GiB) · 100 / 3600 · billed seconds` becomes, with
 * integer milliseconds and MiB, `(5120·vcpus + 3·memMiB) · billedMs / 7 372 800 000`. The numerator is kept as an
 * integer, so sums of any length stay exact. Only the displayed amount is rounded, once.
 */
export const COST_UNITS_PER_CENT = 7_372_800_000n;

const SHOWN_DECIMALS = 12n;

/**
 * Bytes in the object store, multiplied by milliseconds, that cost one unit. 2 cents for 2^30 bytes in a month of 730
 * hours (2 628 000 000 ms) are 2 · 7 372 800 000 units for 2^30 · 2 628 000 000 byte milliseconds.
 */
export const BYTE_MS_PER_COST_UNIT = 191_365_120n;
const BYTE_MS_PER_GB_HOUR = 2 ** 30 * 3_600_000;

export interface BilledShape {
  vcpus: number;
  memMiB: number;
  billedMs: number;
}

/**
 * Computes the cost in units of 1/7 372 800 000 cent. Throws RangeError unless all three numbers are non-negative safe
 * integers.
 */
export function computeCostUnits({ vcpus, memMiB, billedMs }: BilledShape): bigint {
  for (const [name, value] of Object.entries({ vcpus, memMiB, billedMs })) {
    if (!Number.isSafeInteger(value) || value < 0)
      throw new RangeError(`${name} is ${value}, not a whole number`);
  }
  const time = BigInt(billedMs);
  return costOf({ vcpuMs: BigInt(vcpus) * time, memMiBMs: BigInt(memMiB) * time });
}

/** Billed time of any number of sandboxes in milliseconds, multiplied by their vCPUs and by their memory in MiB. */
export interface Consumption {
  vcpuMs: bigint;
  memMiBMs: bigint;
}

/**
 * Returns the cost in cost units. It is linear in both fields, so the cost of a sum is exactly the sum of the costs.
 */
export function costOf({ vcpuMs, memMiBMs }: Consumption): bigint {
  return 5120n * vcpuMs + 3n * memMiBMs;
}

/** Converts byte milliseconds of disks to the field of API answers. */
export function gbHours(byteMs: bigint): number {
  return Number(byteMs) / BYTE_MS_PER_GB_HOUR;
}

/**
 * Converts cost units, and byte milliseconds of disks, to cents, rounded once, half up, to 12 decimals (a millionth of
 * a millionth of a cent).
 */
export function costCents(units: bigint, byteMs = 0n): number {
  return Number(formatCents(units, byteMs));
}

/** Formats the cost as cents with all 12 decimals. Debts are negative. */
export function formatCents(units: bigint, byteMs = 0n): string {
  if (units < 0n) return `-${formatCents(-units)}`;
  const scale = 10n ** SHOWN_DECIMALS;
  const perCent = COST_UNITS_PER_CENT * BYTE_MS_PER_COST_UNIT;
  const scaled = ((units * BYTE_MS_PER_COST_UNIT + byteMs) * scale * 2n + perCent) / (perCent * 2n);
  const fraction = (scaled % scale).toString().padStart(Number(SHOWN_DECIMALS), '0');
  return `${scaled / scale}.${fraction}`;
}
