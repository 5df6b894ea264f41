import { wallMs } from '../../lib/fault-directory.ts';
import { bootMs, hostBootId, type HostMoment } from '../../lib/host-clock.ts';

/** Time, as the timers see it; tests bring their own. */
export interface Clock {
  /** Of the host's present boot. */
  readonly bootId: string;
  /** Milliseconds since that boot, in all processes: what intervals are measured with, as they never step. */
  monotonicMs(): number;
  /** Unix milliseconds: what is stored and shown. */
  wallMs(): number;
  /** Calls `action` once after `delayMs`; the result cancels it. */
  schedule(delayMs: number, action: () => void): () => void;
}

export const SYSTEM_CLOCK: Clock = {
  bootId: hostBootId(),
  monotonicMs: bootMs,
  wallMs,
  schedule: (delayMs, action) => {
    const timer = setTimeout(action, delayMs);
    return () => clearTimeout(timer);
  },
};

export function momentOf(clock: Clock): HostMoment {
  return { bootId: clock.bootId, bootMs: clock.monotonicMs(), wallMs: clock.wallMs() };
}
