/** A bill as one would write it by hand, in fractions, from when sandboxes truly ran: what the real one is held against. */
import type { TrueRun } from './simulated-life.ts';

export interface BilledLife {
  vcpus: number;
  memMiB: number;
  runs: readonly TrueRun[];
}

const DAY_MS = 86_400_000;
const SHOWN = 10n ** 12n;

/** Milliseconds that it ran in a month such as 2026-11, day after day. */
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

/** Cents, in 12 decimals rounded half up: 0.025 USD for a vCPU and 0.015 USD for a GiB in an hour. */
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
