import { wallMs } from '../../lib/fault-directory.ts';
import { bootMs, hostBootId, type HostMoment } from '../../lib/host-clock.ts';

/** The source of time. Tests provide their own. */
export interface Clock {
  /** Id of the host's present boot. */
  readonly bootId: string;
  /** Milliseconds since that boot, the same in all processes. They never step, so intervals are measured with them. */
  monotonicMs(): number;
  /** Unix milliseconds, for times that are stored and shown. */
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
