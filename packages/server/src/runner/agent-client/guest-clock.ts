/**
 * Compares a guest's monotonic clock with ours. An emulated clone translates all of its code anew and may take a tenth of
 * a second for its first request; told the time in one, it would be late by as much.
 */
import { z } from 'zod';
import type { AgentSession } from './agent-session.ts';

/** The first answers are slow, and say as little as they are slow. */
const MAX_PINGS = 4;
const GOOD_ROUND_TRIP_MS = 12;
/** On a busy host: the comparison is repeated until its error is below 40 ms, for a second at most. */
const BEARABLE_ROUND_TRIP_MS = 80;
const MAX_PINGING_MS = 1000;
const NS_PER_MS = 1e6;

/** A saved guest may have an agent that is older than the field. */
const Pong = z.object({
  monotonic_ns: z
    .string()
    .regex(/^\d{1,18}$/u)
    .optional(),
});

/** As the agent reads it. */
export function nowUnixNs(): string {
  return String(BigInt(Date.now()) * BigInt(NS_PER_MS));
}

export interface GuestClock {
  /** What it shows now, to within half of the round trip; undefined if the agent does not tell. */
  monotonicNs: () => bigint | undefined;
  roundTripMs: number;
}

export async function compareClock(session: AgentSession): Promise<GuestClock> {
  const startedAt = performance.now();
  let best = await ping(session);
  for (let count = 1; best.roundTripMs > GOOD_ROUND_TRIP_MS; count += 1) {
    if (count >= MAX_PINGS && best.roundTripMs <= BEARABLE_ROUND_TRIP_MS) break;
    if (performance.now() - startedAt > MAX_PINGING_MS) break;
    const next = await ping(session);
    if (next.roundTripMs < best.roundTripMs) best = next;
  }
  return best;
}

async function ping(session: AgentSession): Promise<GuestClock> {
  const sentAt = performance.now();
  const { monotonic_ns } = Pong.parse(await session.call('GET', '/ping'));
  const receivedAt = performance.now();
  const readAt = (sentAt + receivedAt) / 2;
  const sinceRead = (): bigint => BigInt(Math.round((performance.now() - readAt) * NS_PER_MS));
  const monotonicNs = (): bigint | undefined =>
    monotonic_ns === undefined ? undefined : BigInt(monotonic_ns) + sinceRead();
  return { monotonicNs, roundTripMs: receivedAt - sentAt };
}
