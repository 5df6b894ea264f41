/** A bill in fractions, as written by hand, from when sandboxes truly ran. Tests compare the real bill with it. */
import type { TrueRun } from './simulated-life.ts';

export interface BilledLife {
  vcpus: number;
  memMiB: number;
  runs: readonly TrueRun[];
}

const DAY_MS = 86_400_000;
const SHOWN = 10n ** 12n;

/** Counts the milliseconds of `runs` in a month such as 2026-11, day by day; without one, in all time. */
export function countMs(runs: readonly TrueRun[], month?: string): number {
  let total = 0;
  for (const run of runs) {
    for (let from = run.from; from < run.to;) {
      const nextDay = (Math.floor(from / DAY_MS) + 1) * DAY_MS;
      const to = Math.min(run.to, nextDay);
      if (month === undefined || new Date(from).toISOString().startsWith(month)) total += to - from;
      from = to;
    }
  }
  return total;
}

/** Returns cents, with 12 decimals rounded half up: 0.025 USD for a vCPU and 0.015 USD for a GiB in an hour. */
export function billCents(lives: readonly BilledLife[], month?: string): number {
  let numerator = 0n;
  for (const { vcpus, memMiB, runs } of lives) {
    const perHour = 25n * 1024n * BigInt(vcpus) + 15n * BigInt(memMiB);
    numerator += perHour * 100n * BigInt(countMs(runs, month));
  }
  const denominator = 1000n * 1024n * 3_600_000n;
  const scaled = (2n * numerator * SHOWN + denominator) / (2n * denominator);
  const digits = scaled.toString().padStart(13, '0');
  return Number(`${digits.slice(0, -12)}.${digits.slice(-12)}`);
}
