/**
 * Computes how long a sandbox has lived and been idle, whatever is done to the host's clock meanwhile: from the time
 * since the host's boot, which all processes share, and only across a boot from the wall clock. Never negative. Pure.
 */
import type { HostMoment } from '../../lib/host-clock.ts';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';

export type LifeTimes = Pick<
  SandboxRow,
  | 'boot_id'
  | 'created_at'
  | 'created_boot_ms'
  | 'last_active_at'
  | 'last_seen_at'
  | 'last_seen_boot_ms'
  | 'billed_ms'
  | 'hibernated_ms'
>;

/** Returns the time since the create began; never less than the time that is recorded as billed or hibernated. */
export function findAgeMs(row: LifeTimes, now: HostMoment): number {
  const ageMs = elapsed(row.boot_id === now.bootId ? row.created_boot_ms : null, row.created_at, now);
  return Math.max(ageMs, findSettledAgeMs(row));
}

/** Returns the age at the last resume or hibernation: time before that is billed or hibernated, to the millisecond. */
export function findSettledAgeMs(row: Pick<SandboxRow, 'billed_ms' | 'hibernated_ms'>): number {
  return row.billed_ms + row.hibernated_ms;
}

/** Returns the age at the last time that the VM was known to run. */
export function findAgeWhenSeenMs(row: LifeTimes): number {
  const { created_boot_ms: createdMs, last_seen_boot_ms: seenMs } = row;
  const ageMs =
    createdMs === null || seenMs === null ? row.last_seen_at - row.created_at : seenMs - createdMs;
  return Math.max(findSettledAgeMs(row), Math.round(ageMs));
}

export type LastSeen = Pick<LifeTimes, 'boot_id' | 'last_seen_at' | 'last_seen_boot_ms'>;

/** Returns the row with the later of both moments at which its VM was known to run. One of another boot is not that VM's. */
export function keepLastSeen<T extends LastSeen>(row: T, { boot_id, ...seen }: LastSeen): T {
  if (row.boot_id !== null && row.boot_id !== boot_id) return row;
  const [ownMs, seenMs] = [row.last_seen_boot_ms, seen.last_seen_boot_ms];
  const isLater =
    row.boot_id === null || ownMs === null || seenMs === null
      ? seen.last_seen_at > row.last_seen_at
      : seenMs > ownMs;
  const { last_seen_at, last_seen_boot_ms } = seen;
  return isLater ? { ...row, last_seen_at, last_seen_boot_ms } : row;
}

/** Returns the time since the last request: the idle time when the VM was seen last, and the time since. */
export function findIdleMs(row: LifeTimes, now: HostMoment): number {
  return Math.max(0, row.last_seen_at - row.last_active_at) + findUnseenMs(row, now);
}

/** Returns how much of its age it was hibernated, including a hibernation that continues. */
export function findHibernatedMs(row: LifeTimes & Pick<SandboxRow, 'status'>, now: HostMoment): number {
  return row.status === 'hibernated' ? findAgeMs(row, now) - row.billed_ms : row.hibernated_ms;
}

/** Returns the time since the VM was last known to run. */
export function findUnseenMs(row: LifeTimes, now: HostMoment): number {
  return elapsed(row.boot_id === now.bootId ? row.last_seen_boot_ms : null, row.last_seen_at, now);
}

/** Returns how long it ran until the age `ageMs`: the only measure of every bill, of live and of ended sandboxes. */
export function findBilledMs(
  row: Pick<SandboxRow, 'status' | 'billed_ms' | 'hibernated_ms'>,
  ageMs: number,
): number {
  if (row.status === 'hibernated') return row.billed_ms;
  return row.billed_ms + Math.max(0, Math.round(ageMs) - findSettledAgeMs(row));
}

function elapsed(fromBootMs: number | null, fromWallMs: number, now: HostMoment): number {
  const elapsedMs = fromBootMs === null ? now.wallMs - fromWallMs : now.bootMs - fromBootMs;
  return Math.max(0, Math.round(elapsedMs));
}
