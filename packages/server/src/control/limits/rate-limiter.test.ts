import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Limits } from './organization-limits.ts';
import { RateLimiter } from './rate-limiter.ts';

const limits = (requestsPerSecond: number, requestBurst: number): Limits => ({
  sandboxes: 1,
  vcpus: 1,
  memMiB: 1,
  openRequests: 1,
  openStreams: 1,
  snapshotBytes: 1,
  disks: 1,
  diskGb: 1,
  requestsPerSecond,
  requestBurst,
});

test('a burst is allowed, then as many requests per second as the rate', () => {
  let nowMs = 0;
  const limiter = new RateLimiter(
    () => limits(10, 5),
    () => nowMs,
  );
  const allowed = () => limiter.take('org1')?.isAllowed;
  for (let index = 0; index < 5; index += 1) assert.equal(allowed(), true);
  assert.equal(allowed(), false);
  nowMs += 99;
  assert.equal(allowed(), false);
  nowMs += 1;
  assert.equal(allowed(), true);
  assert.equal(allowed(), false);
});

test('one organization does not use up the requests of another', () => {
  const limiter = new RateLimiter(
    () => limits(1, 1),
    () => 0,
  );
  assert.equal(limiter.take('org1')?.isAllowed, true);
  assert.equal(limiter.take('org1')?.isAllowed, false);
  assert.equal(limiter.take('org2')?.isAllowed, true);
});

test('each verdict says how many requests are left and when there are more', () => {
  let nowMs = 0;
  const limiter = new RateLimiter(
    () => limits(2, 4),
    () => nowMs,
  );
  assert.deepEqual(limiter.take('org1'), { isAllowed: true, burst: 4, perSecond: 2, left: 3, resetS: 1 });
  limiter.take('org1');
  assert.deepEqual(limiter.take('org1'), { isAllowed: true, burst: 4, perSecond: 2, left: 1, resetS: 2 });
  limiter.take('org1');
  nowMs += 10;
  assert.deepEqual(limiter.take('org1'), { isAllowed: false, burst: 4, perSecond: 2, left: 0, resetS: 1 });
});

test('without a limit there is no verdict and no bucket', () => {
  const limiter = new RateLimiter(() => limits(Infinity, 1));
  assert.equal(limiter.take('org1'), undefined);
  assert.equal(limiter.size, 0);
});

test('buckets that are full again are forgotten', () => {
  let nowMs = 0;
  const limiter = new RateLimiter(
    () => limits(1, 10),
    () => nowMs,
  );
  for (let index = 0; index < 1000; index += 1) limiter.take(`org${index}`);
  assert.equal(limiter.size, 1000);
  nowMs += 120_000;
  limiter.take('org0');
  assert.equal(limiter.size, 1);
});

test('no span of time allows more requests than the burst plus the rate', () => {
  const gaps = fc.array(fc.integer({ min: 0, max: 500 }), { minLength: 1, maxLength: 200 });
  const rate = fc.integer({ min: 1, max: 100 });
  const burst = fc.integer({ min: 1, max: 50 });
  fc.assert(
    fc.property(gaps, rate, burst, (waits, perSecond, most) => {
      let nowMs = 0;
      const limiter = new RateLimiter(
        () => limits(perSecond, most),
        () => nowMs,
      );
      const times: number[] = [];
      for (const wait of waits) {
        nowMs += wait;
        if (limiter.take('org1')?.isAllowed === true) times.push(nowMs);
      }
      for (const [index, from] of times.entries()) {
        const span = (times.at(-1) ?? from) - from;
        assert.ok(times.length - index <= most + (span / 1000) * perSecond + 1e-6);
      }
    }),
  );
});
