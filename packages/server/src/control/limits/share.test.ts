import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Limits } from './organization-limits.ts';
import { RateLimiter } from './rate-limiter.ts';
import { shareLimit, shareLimits } from './share.ts';

const LIMITS: Limits = {
  sandboxes: 10,
  vcpus: 10,
  memMiB: 10,
  openRequests: 10,
  openStreams: 1,
  snapshotBytes: 10,
  requestsPerSecond: 100,
  requestBurst: 30,
  disks: 10,
  diskGb: 10,
};

test('the shares of all controls are together at most the limit, unless there are more controls than it allows', () => {
  const limits = fc.integer({ min: 0, max: 10_000 });
  const numbers = fc.integer({ min: 1, max: 100 });
  fc.assert(
    fc.property(limits, numbers, (limit, controls) => {
      const share = shareLimit(limit, controls);
      assert.ok(share * controls <= Math.max(limit, controls));
      assert.equal(share > 0, limit > 0);
      assert.ok(share <= limit);
    }),
  );
});

test('only what each control counts in its memory is shared, and no limit stays none', () => {
  const shared = shareLimits(
    () => ({ ...LIMITS, requestsPerSecond: Infinity }),
    (limit) => shareLimit(limit, 3),
  );
  assert.deepEqual(shared('org'), {
    ...LIMITS,
    openRequests: 3,
    requestsPerSecond: Infinity,
    requestBurst: 10,
  });
});

test('two controls together allow the burst and the rate of one, and one that is alone again allows all of it', () => {
  let controls = 2;
  let nowMs = 0;
  const limitsOf = shareLimits(
    () => LIMITS,
    (limit) => shareLimit(limit, controls),
  );
  const limiters = [1, 2].map(() => new RateLimiter(limitsOf, () => nowMs));
  const takeAll = (): number => {
    let taken = 0;
    for (const limiter of limiters.slice(0, controls))
      while (limiter.take('org')?.isAllowed === true) taken += 1;
    return taken;
  };
  assert.equal(takeAll(), 30);
  nowMs += 100;
  assert.equal(takeAll(), 10);
  controls = 1;
  nowMs += 100;
  assert.equal(takeAll(), 10);
  nowMs += 1_000;
  assert.equal(takeAll(), 30);
});
