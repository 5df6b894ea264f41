import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import type { AgentSession } from './agent-session.ts';
import { compareClock } from './guest-clock.ts';

const SLOW_MS = 100;
const NS_PER_MS = 1e6;

/** An agent whose answers come back this late, one after the other; the last of them again and again. */
function answerAfter(...delaysMs: number[]): { session: AgentSession; pings: () => number } {
  let pings = 0;
  const call = async (): Promise<unknown> => {
    const delayMs = delaysMs[Math.min(pings, delaysMs.length - 1)] ?? 0;
    pings += 1;
    const monotonic_ns = String(Math.round(performance.now() * NS_PER_MS));
    if (delayMs > 0) await wait(delayMs);
    return { monotonic_ns };
  };
  return { session: { call } as unknown as AgentSession, pings: () => pings };
}

test('a quick answer is enough', async () => {
  const { session, pings } = answerAfter(0);
  await compareClock(session);
  assert.equal(pings(), 1);
});

test('where answers are slow it asks on for one that is not', async () => {
  const { session, pings } = answerAfter(SLOW_MS, SLOW_MS, SLOW_MS, SLOW_MS, SLOW_MS, 0);
  const clock = await compareClock(session);
  assert.equal(pings(), 6);
  const errorMs = Number(clock.monotonicNs()) / NS_PER_MS - performance.now();
  assert.ok(Math.abs(errorMs) < SLOW_MS / 2, `${errorMs} ms off`);
});

test('it asks for about a second at most', async () => {
  const { session, pings } = answerAfter(SLOW_MS);
  await compareClock(session);
  assert.ok(pings() >= 4 && pings() <= 1000 / SLOW_MS + 1, `${pings()} requests`);
});
