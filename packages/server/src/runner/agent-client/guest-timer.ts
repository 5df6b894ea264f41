/**
 * Whether a guest's timers come in time. Its kernel measures, once and while it boots, how fast the timer of its processor
 * counts, by the time stamp counter and over a tenth of a second. A host that is busy at the end of that makes it find too
 * much, and then every wait of every program is too long by as much, in all sandboxes of the template.
 */
import { z } from 'zod';
import type { AgentSession } from './agent-session.ts';

export const GuestTimer = z.object({ device: z.string().max(64), rate_hz: z.int().nonnegative() });
export type GuestTimer = z.infer<typeof GuestTimer>;

/** Of the timer that QEMU and KVM emulate: it counts nanoseconds, and the kernel has it count every sixteenth. */
const TRUE_RATE_HZ = 1e9 / 16;
/** One that is set by the time stamp counter, whose rate nobody measures. */
const NEEDS_NO_RATE = 'lapic-deadline';
/** Waits may be longer by this part. */
const MAX_LATE = 0.005;
/** A timer that comes too early is set again for the rest, which costs a wake-up. */
const MAX_EARLY = 0.1;

/** It takes milliseconds: a guest that has not answered by then does not at all. */
const ANSWER_TIMEOUT_MS = 20_000;

/** Throws DeadlineError when the guest does not answer. */
export async function readTimer(session: Pick<AgentSession, 'call'>): Promise<GuestTimer> {
  const answer = await session.call('GET', '/timer', undefined, { timeoutMs: ANSWER_TIMEOUT_MS });
  return GuestTimer.parse(answer);
}

export function isInTime({ device, rate_hz }: GuestTimer): boolean {
  if (device === NEEDS_NO_RATE) return true;
  const late = rate_hz / TRUE_RATE_HZ - 1;
  return device === 'lapic' && late <= MAX_LATE && late >= -MAX_EARLY;
}
