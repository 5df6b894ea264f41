/**
 * Checks whether a guest's timers fire in time. The guest kernel measures the rate of its processor's timer once, at
 * boot, against the time stamp counter and over a tenth of a second. If the host is busy at the end of that interval,
 * the kernel measures too high a rate. Then every wait of every program is too long by as much, in all sandboxes of the
 * template.
 */
import { z } from 'zod';
import type { AgentSession } from './agent-session.ts';

export const GuestTimer = z.object({ device: z.string().max(64), rate_hz: z.int().nonnegative() });
export type GuestTimer = z.infer<typeof GuestTimer>;

/** The true rate of the timer that QEMU and KVM emulate: it counts nanoseconds, and the kernel divides them by 16. */
const TRUE_RATE_HZ = 1e9 / 16;
/** A timer set by the time stamp counter: the kernel does not measure its rate. */
const NEEDS_NO_RATE = 'lapic-deadline';
/** The fraction by which waits may be too long. */
const MAX_LATE = 0.005;
/**
 * The fraction by which waits may be too short. A timer that fires early is set again for the rest, which costs a
 * wake-up.
 */
const MAX_EARLY = 0.1;

/** The answer takes milliseconds: a guest that has not answered by then will not answer. */
const ANSWER_TIMEOUT_MS = 20_000;

/** Reads the guest's timer. Throws DeadlineError when the guest does not answer. */
export async function readTimer(session: Pick<AgentSession, 'call'>): Promise<GuestTimer> {
  const answer = await session.call('GET', '/timer', undefined, { timeoutMs: ANSWER_TIMEOUT_MS });
  return GuestTimer.parse(answer);
}

export function isInTime({ device, rate_hz }: GuestTimer): boolean {
  if (device === NEEDS_NO_RATE) return true;
  const late = rate_hz / TRUE_RATE_HZ - 1;
  return device === 'lapic' && late <= MAX_LATE && late >= -MAX_EARLY;
}
