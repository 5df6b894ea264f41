/**
 * Compares a guest's monotonic clock with the host's. An emulated clone retranslates all of its code, and its first
 * request may take a tenth of a second. A clock set by that request would be late by as much.
 *
 * The guest reads its clock at some time between the runner's request and its answer, so each round trip bounds the
 * difference of the two clocks. All round trips together bound it more tightly than the shortest one alone.
 */
import { z } from 'zod';
import { stretched } from '../../lib/waiting/deadline.ts';
import type { AgentSession } from './agent-session.ts';

/** The first answers are slow, and a slow answer says little. */
const MAX_PINGS = 4;
/** Width of the bounds at which the comparison ends; the error is at most half of it. */
const GOOD_WIDTH_MS = 12;
/**
 * The width accepted after `MAX_PINGS`. On a busy host the comparison continues until it is reached, or until
 * `MAX_PINGING_MS` is over.
 */
const BEARABLE_WIDTH_MS = 80;
const MAX_PINGING_MS = 3000;
const NS_PER_MS = 1_000_000n;

/** The agent of a saved guest may be older than the field. */
const Pong = z.object({
  monotonic_ns: z
    .string()
    .regex(/^\d{1,18}$/u)
    .optional(),
});

/** The current Unix time in nanoseconds, as the agent parses it. */
export function nowUnixNs(): string {
  return String(BigInt(Date.now()) * NS_PER_MS);
}

/** Sets the guest's clock. An agent that is older than `clock_monotonic_ns` uses the arrival time of the request. */
export async function tellTime(session: AgentSession): Promise<void> {
  const { monotonicNs } = await compareClock(session);
  const shown = monotonicNs();
  await session.call('POST', '/clock', {
    clock_unix_ns: nowUnixNs(),
    ...(shown === undefined ? {} : { clock_monotonic_ns: String(shown) }),
  });
}

export interface GuestClock {
  /** Returns the guest's current monotonic time in nanoseconds, or undefined if the agent does not report it. */
  monotonicNs: () => bigint | undefined;
}

/** Bounds of the guest's clock minus the host's, in nanoseconds. */
interface Bounds {
  low: bigint;
  high: bigint;
}

export async function compareClock(session: AgentSession): Promise<GuestClock> {
  const endsAt = performance.now() + stretched(MAX_PINGING_MS);
  let bounds = await ping(session);
  for (let count = 1; bounds !== undefined && !isNarrow(bounds, count); count += 1) {
    if (performance.now() > endsAt) break;
    bounds = intersect(bounds, await ping(session));
  }
  const found = bounds;
  return {
    monotonicNs: () =>
      found === undefined ? undefined : process.hrtime.bigint() + (found.low + found.high) / 2n,
  };
}

function isNarrow({ low, high }: Bounds, pings: number): boolean {
  const widthMs = pings < MAX_PINGS ? GOOD_WIDTH_MS : BEARABLE_WIDTH_MS;
  return high - low <= BigInt(widthMs) * NS_PER_MS;
}

/** A hostile agent's answers may contradict each other; then the last one counts. */
function intersect(known: Bounds, next: Bounds | undefined): Bounds | undefined {
  if (next === undefined || next.low > known.high || next.high < known.low) return next;
  return {
    low: known.low > next.low ? known.low : next.low,
    high: known.high < next.high ? known.high : next.high,
  };
}

async function ping(session: AgentSession): Promise<Bounds | undefined> {
  const sentNs = process.hrtime.bigint();
  const { monotonic_ns } = Pong.parse(await session.call('GET', '/ping'));
  const receivedNs = process.hrtime.bigint();
  if (monotonic_ns === undefined) return undefined;
  const shown = BigInt(monotonic_ns);
  return { low: shown - receivedNs, high: shown - sentNs };
}
