/**
 * Stretches of running on the wall clock, for months to divide. A sandbox's life is measured by the host's boot clock and
 * laid from its `created_at` on, so that however the wall clock is set meanwhile a stretch is as long as its bill. Pure.
 *
 *     created_at ── runs ──┬── hibernated ──┬── runs ──┬ ended_at
 *        segment: billed_ms 0 → n           segment: n → m        ends where age = billed_ms + hibernated_ms
 */
import type { HostMoment } from '../../lib/host-clock.ts';
import type { SandboxRow, SandboxUpdate } from '../sandbox/record/sandbox-tables.ts';
import { findAgeMs, findSettledAgeMs, findBilledMs } from '../time/lifetime.ts';

type Lived = Pick<SandboxRow, 'created_at' | 'billed_ms' | 'hibernated_ms'>;

/** What of a sandbox that is alive bears on its bill. */
export const BILLABLE_COLUMNS = [
  'id',
  'team_id',
  'status',
  'vcpus',
  'mem_mib',
  'boot_id',
  'created_at',
  'created_boot_ms',
  'last_active_at',
  'last_seen_at',
  'last_seen_boot_ms',
  'billed_ms',
  'hibernated_ms',
] as const satisfies readonly (keyof SandboxRow)[];

export type BillableRow = Pick<SandboxRow, (typeof BILLABLE_COLUMNS)[number]>;

/** Unix milliseconds; it is billed from the first to the last, not including that. */
export interface Stretch {
  startedAt: number;
  endedAt: number;
}

/** What `change` ends; undefined when nothing of it is billed. */
export function findClosedStretch(from: Lived, change: SandboxUpdate): Stretch | undefined {
  return change.billed_ms === undefined ? undefined : buildStretch(from, change.billed_ms);
}

/** What runs now and is billed up to now. One that is being created is billed once it has been: nobody pays for a failure. */
export function findOpenStretch(row: BillableRow, now: HostMoment): Stretch | undefined {
  return row.status === 'running' ? buildStretch(row, findBilledMs(row, findAgeMs(row, now))) : undefined;
}

/** What a sandbox that is alive would be billed if it ended now. */
export function findBilledToDateMs(row: BillableRow, now: HostMoment): number {
  const open = findOpenStretch(row, now);
  return row.billed_ms + (open === undefined ? 0 : open.endedAt - open.startedAt);
}

function buildStretch(row: Lived, billedMs: number): Stretch | undefined {
  const startedAt = row.created_at + findSettledAgeMs(row);
  const endedAt = startedAt + billedMs - row.billed_ms;
  return endedAt > startedAt ? { startedAt, endedAt } : undefined;
}
