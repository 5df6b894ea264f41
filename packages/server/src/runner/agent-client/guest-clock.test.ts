import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import type { AgentSession } from './agent-session.ts';
import { compareClock, tellTime } from './guest-clock.ts';

const SLOW_MS = 100;
const TOLERANCE_MS = 20;
const NS_PER_MS = 1e6;
/** The guest's clock minus the host's. */
const AHEAD_NS = 5_000_000_000n;

/** The delay of an answer, before and after the agent reads its clock. */
type Delay = readonly [beforeMs: number, afterMs: number];

/** An agent whose answers have the given delays, in order; the last delay repeats. */
function answerAfter(...delays: Delay[]): { session: AgentSession; pings: () => number } {
  let pings = 0;
  const call = async (): Promise<unknown> => {
    const [beforeMs, afterMs] = delays[Math.min(pings, delays.length - 1)] ?? [0, 0];
    pings += 1;
    if (beforeMs > 0) await wait(beforeMs);
    const monotonic_ns = String(process.hrtime.bigint() + AHEAD_NS);
    if (afterMs > 0) await wait(afterMs);
    return { monotonic_ns };
  };
  return { session: { call } as unknown as AgentSession, pings: () => pings };
}

async function measureErrorMs(session: AgentSession): Promise<number> {
  const { monotonicNs } = await compareClock(session);
  const shown = monotonicNs();
  assert.ok(shown !== undefined);
  return Math.abs(Number(shown - AHEAD_NS - process.hrtime.bigint())) / NS_PER_MS;
}

test('a quick answer is enough', async () => {
  const { session, pings } = answerAfter([0, 0]);
  await compareClock(session);
  assert.equal(pings(), 1);
});

test('slow answers are followed by more requests until a quick one arrives', async () => {
  const slow: Delay = [0, SLOW_MS];
  const { session, pings } = answerAfter(slow, slow, slow, slow, slow, [0, 0]);
  assert.ok((await measureErrorMs(session)) < TOLERANCE_MS);
  assert.equal(pings(), 6);
});

test('two slow answers, one slow on the way there and one on the way back, give the time together', async () => {
  const { session, pings } = answerAfter([SLOW_MS, 0], [0, SLOW_MS]);
  assert.ok((await measureErrorMs(session)) < TOLERANCE_MS);
  assert.ok(pings() <= 4, `${pings()} requests`);
});

test('the comparison takes three seconds at most', async () => {
  const { session, pings } = answerAfter([0, SLOW_MS]);
  assert.ok((await measureErrorMs(session)) < SLOW_MS);
  assert.ok(pings() > 4 && pings() <= 3000 / SLOW_MS + 1, `${pings()} requests`);
});

test('if answers contradict each other, the last one counts', async () => {
  let told = 0n;
  const call = async (): Promise<unknown> => {
    await wait(SLOW_MS);
    return { monotonic_ns: String((told += 1_000_000_000_000n)) };
  };
  const { monotonicNs } = await compareClock({ call } as unknown as AgentSession);
  assert.ok((monotonicNs() ?? 0n) >= told);
});

test('an agent that does not report its clock is asked once', async () => {
  let pings = 0;
  const call = async (): Promise<unknown> => ((pings += 1), {});
  const clock = await compareClock({ call } as unknown as AgentSession);
  assert.deepEqual([clock.monotonicNs(), pings], [undefined, 1]);
});

test('the time is sent relative to the guest\u2019s monotonic clock, so a late request is still correct', async () => {
  const { session } = answerAfter([0, 0]);
  const ping = session.call.bind(session);
  const told: Record<string, string>[] = [];
  const call = async (method: string, path: string, body?: object): Promise<unknown> => {
    if (path === '/ping') return ping('GET', path);
    assert.deepEqual([method, path], ['POST', '/clock']);
    await wait(SLOW_MS);
    told.push(body as Record<string, string>);
    return {};
  };
  await tellTime({ call } as unknown as AgentSession);
  const [{ clock_unix_ns: unixNs, clock_monotonic_ns: monotonicNs } = {}] = told;
  const nowNs = BigInt(unixNs ?? 0) + (process.hrtime.bigint() + AHEAD_NS - BigInt(monotonicNs ?? 0));
  assert.ok(Math.abs(Number(nowNs) / NS_PER_MS - Date.now()) < TOLERANCE_MS);
});
