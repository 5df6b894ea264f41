import type { HostMoment } from '../../../lib/host-clock.ts';
import { findAgeMs } from '../../time/lifetime.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import type { TimeLimits } from './idle-timer.ts';

/** Returns the limits of a sandbox. A hibernated one has no VM that could be idle. */
export function findTimeLimits(row: Readonly<SandboxRow>, now: HostMoment): TimeLimits {
  const { status, timeout_s, max_lifetime_s, ends_at } = row;
  return {
    timeoutMs: status === 'running' ? timeout_s * 1000 : 0,
    ...(max_lifetime_s === null ? {} : { lifetimeLeftMs: max_lifetime_s * 1000 - findAgeMs(row, now) }),
    ...(ends_at === null ? {} : { endsAt: ends_at }),
  };
}
