import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GuestQuota } from './guest-quota.ts';

const LIMITS = { ratePerSecond: 10, burst: 3, inFlight: 2, connections: 1 };

test('a guest may ask in a burst and then at its rate', () => {
  let nowMs = 0;
  const quota = new GuestQuota(LIMITS, () => nowMs);
  const ask = () => {
    const giveBack = quota.takeQuestion('10.0.0.6');
    giveBack?.();
    return giveBack !== undefined;
  };
  assert.deepEqual([ask(), ask(), ask(), ask()], [true, true, true, false]);
  nowMs = 100;
  assert.deepEqual([ask(), ask()], [true, false]);
  nowMs = 10_000;
  assert.deepEqual([ask(), ask(), ask(), ask()], [true, true, true, false]);
});

test('questions in flight and connections are counted separately for each guest', () => {
  const quota = new GuestQuota(LIMITS, () => 0);
  const first = quota.takeQuestion('a');
  assert.ok(quota.takeQuestion('a') && !quota.takeQuestion('a') && quota.takeQuestion('b'));
  first?.();
  first?.();
  assert.ok(quota.takeQuestion('a') && !quota.takeQuestion('a'), 'a second release has no effect');
  assert.ok(quota.takeConnection('a') && !quota.takeConnection('a') && quota.takeConnection('b'));
});

test('the next owner of an address starts with a full quota', () => {
  const quota = new GuestQuota(LIMITS, () => 0);
  quota.takeConnection('a');
  quota.forget('a');
  assert.ok(quota.takeConnection('a'));
});
