/**
 * How long a sandbox has lived and been idle, whatever is done to the host's clock meanwhile: by the time since the
 * host's boot, which all processes share, and only across a boot by the wall clock. Never negative. Pure.
 */
import type { HostMoment } from '../../lib/host-clock.ts';
import type { SandboxRow } from '../db/tables.ts';

type Times = Pick<
  SandboxRow,
  'boot_id' | 'created_at' | 'created_boot_ms' | 'last_active_at' | 'last_seen_at' | 'last_seen_boot_ms'
>;

type HibernationTimes = Pick<
  SandboxRow,
  'boot_id' | 'hibernated_at' | 'hibernated_boot_ms' | 'hibernated_ms'
>;

/** Since the create began. */
export function findAgeMs(row: Times, now: HostMoment): number {
  return elapsed(row.boot_id === now.bootId ? row.created_boot_ms : null, row.created_at, now);
}

/** At the last time that the VM was known to run. */
export function findAgeWhenSeenMs(row: Times): number {
  const { created_boot_ms: createdMs, last_seen_boot_ms: seenMs } = row;
  const ageMs =
    createdMs === null || seenMs === null ? row.last_seen_at - row.created_at : seenMs - createdMs;
  return Math.max(0, Math.round(ageMs));
}

/** Since the last request: what it was when the VM was seen last, and the time since. */
export function findIdleMs(row: Times, now: HostMoment): number {
  return Math.max(0, row.last_seen_at - row.last_active_at) + findUnseenMs(row, now);
}

/** How much of its age it was hibernated, with the hibernation that still goes on. */
export function findHibernatedMs(row: HibernationTimes, now: HostMoment): number {
  if (row.hibernated_at === null) return row.hibernated_ms;
  const fromBootMs = row.boot_id === now.bootId ? row.hibernated_boot_ms : null;
  return row.hibernated_ms + elapsed(fromBootMs, row.hibernated_at, now);
}

/** Since the VM was known to run. */
export function findUnseenMs(row: Times, now: HostMoment): number {
  return elapsed(row.boot_id === now.bootId ? row.last_seen_boot_ms : null, row.last_seen_at, now);
}

function elapsed(fromBootMs: number | null, fromWallMs: number, now: HostMoment): number {
  const elapsedMs = fromBootMs === null ? now.wallMs - fromWallMs : now.bootMs - fromBootMs;
  return Math.max(0, Math.round(elapsedMs));
}
