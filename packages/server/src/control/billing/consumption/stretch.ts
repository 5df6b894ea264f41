/**
 * Stretches of running on the wall clock, which statements divide into months. A sandbox's life is measured by the
 * host's boot clock and placed from its `created_at` on, so that a stretch is as long as its bill even if the wall
 * clock is set meanwhile. Pure.
 *
 *     created_at ── runs ──┬── hibernated ──┬── runs ──┬ ended_at
 *        segment: billed_ms 0 → n           segment: n → m        ends where age = billed_ms + hibernated_ms
 */
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { SandboxRow, SandboxUpdate } from '../../sandbox/record/sandbox-tables.ts';
import { findAgeMs, findSettledAgeMs, findBilledMs } from '../../time/lifetime.ts';

type Lived = Pick<SandboxRow, 'created_at' | 'billed_ms' | 'hibernated_ms'>;

/** The columns that determine the bill of a live sandbox. */
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

/** Unix milliseconds: billed from `startedAt`, inclusive, to `endedAt`, exclusive. */
export interface Stretch {
  startedAt: number;
  endedAt: number;
}

/** Returns the stretch that `change` ends, or undefined if nothing of it is billed. */
export function findClosedStretch(from: Lived, change: SandboxUpdate): Stretch | undefined {
  return change.billed_ms === undefined ? undefined : buildStretch(from, change.billed_ms);
}

/**
 * Returns the stretch of a running sandbox up to `now`. A sandbox that is being created is billed only after the create
 * has succeeded: failures cost nothing.
 */
export function findOpenStretch(row: BillableRow, now: HostMoment): Stretch | undefined {
  return row.status === 'running' ? buildStretch(row, findBilledMs(row, findAgeMs(row, now))) : undefined;
}

/** Returns the milliseconds that a live sandbox would be billed for if it ended now. */
export function findBilledToDateMs(row: BillableRow, now: HostMoment): number {
  const open = findOpenStretch(row, now);
  return row.billed_ms + (open === undefined ? 0 : open.endedAt - open.startedAt);
}

function buildStretch(row: Lived, billedMs: number): Stretch | undefined {
  const startedAt = row.created_at + findSettledAgeMs(row);
  const endedAt = startedAt + billedMs - row.billed_ms;
  return endedAt > startedAt ? { startedAt, endedAt } : undefined;
}
