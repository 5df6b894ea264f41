import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ManualClock } from '../../testing/manual-clock.ts';
import { IdleTimer, type IdleTimerOptions } from './idle-timer.ts';

interface Expiry {
  at: number;
  reason: string;
}

function setUp(options: Partial<IdleTimerOptions> = {}) {
  const clock = new ManualClock();
  const expiries: Expiry[] = [];
  const onExpire = (reason: string) => expiries.push({ at: clock.monotonicMs(), reason });
  const timer = new IdleTimer({ clock, timeoutMs: 10_000, onExpire, ...options });
  return { clock, timer, expiries };
}

test('expires when the timeout has passed without a request, and not before', () => {
  const { clock, expiries } = setUp();
  clock.advance(9_999);
  assert.deepEqual(expiries, []);
  clock.advance(1);
  assert.deepEqual(expiries, [{ at: 10_000, reason: 'idle_timeout' }]);
});

test('does not expire while a request is open, and counts from the end of the request', () => {
  const { clock, timer, expiries } = setUp();
  clock.advance(5_000);
  const close = timer.open();
  clock.advance(100_000);
  assert.equal(timer.endsAtMs, null);
  close();
  clock.advance(9_999);
  assert.deepEqual(expiries, []);
  clock.advance(1);
  assert.equal(expiries.length, 1);
});

test('it says for how long the oldest open request has been open', () => {
  const { clock, timer } = setUp();
  assert.equal(timer.openForMs, 0);
  const first = timer.open();
  clock.advance(2_000);
  const second = timer.open();
  clock.advance(1_000);
  assert.equal(timer.openForMs, 3_000);
  first();
  assert.equal(timer.openForMs, 1_000);
  second();
  assert.deepEqual([timer.openForMs, timer.isOpen], [0, false]);
});

test('closing a request twice counts once', () => {
  const { clock, timer, expiries } = setUp();
  const first = timer.open();
  timer.open();
  first();
  first();
  clock.advance(100_000);
  assert.deepEqual(expiries, []);
});

test('a timeout of 0 never expires, and setting one later starts from then', () => {
  const { clock, timer, expiries } = setUp({ timeoutMs: 0 });
  clock.advance(1e9);
  assert.deepEqual(expiries, []);
  timer.restart({ timeoutMs: 1_000 });
  clock.advance(1_000);
  assert.equal(expiries.length, 1);
});

test('the end of the lifetime expires even with open requests', () => {
  const { clock, timer, expiries } = setUp({ lifetimeLeftMs: 30_000 });
  timer.open();
  clock.advance(30_000);
  assert.deepEqual(expiries, [{ at: 30_000, reason: 'max_lifetime' }]);
});

test('a lifetime that is set, prolonged or removed later counts from then', () => {
  const { clock, timer, expiries } = setUp({ timeoutMs: 0 });
  clock.advance(20_000);
  timer.restart({ timeoutMs: 0, lifetimeLeftMs: 10_000 });
  assert.equal(timer.endsAtMs, clock.wallMs() + 10_000);
  clock.advance(9_999);
  timer.restart({ timeoutMs: 0, lifetimeLeftMs: 5_000 });
  clock.advance(4_999);
  timer.restart({ timeoutMs: 0 });
  clock.advance(1e9);
  assert.deepEqual(expiries, []);
  timer.restart({ timeoutMs: 0, lifetimeLeftMs: 1 });
  clock.advance(1);
  assert.deepEqual(
    expiries.map(({ reason }) => reason),
    ['max_lifetime'],
  );
});

test('a given end is shown unchanged, although clocks advance while it is read', () => {
  const clock = new ManualClock();
  const endsAt = clock.wallMs() + 3_600_000;
  const readMs = clock.monotonicMs.bind(clock);
  clock.monotonicMs = () => {
    clock.advance(0.4);
    return readMs();
  };
  const timer = new IdleTimer({ clock, timeoutMs: 0, endsAt, onExpire: () => undefined });
  for (let read = 0; read < 10; read += 1) assert.equal(timer.endsAtMs, endsAt);
});

test('a given end expires at that time of the wall clock, even with open requests and if the clock is set', () => {
  const { clock, timer, expiries } = setUp();
  const hour = 3_600_000;
  timer.open();
  timer.restart({ timeoutMs: 0, lifetimeLeftMs: 10 * hour, endsAt: clock.wallMs() + hour });
  assert.equal(timer.endsAtMs, clock.wallMs() + hour);
  clock.advance(hour / 4);
  clock.setWall(clock.wallMs() - hour / 2);
  assert.equal(timer.endsAtMs, clock.wallMs() + hour + hour / 4);
  clock.advance(hour);
  assert.deepEqual(expiries, []);
  clock.setWall(clock.wallMs() + 2 * hour);
  clock.advance(60_000);
  assert.deepEqual(
    expiries.map(({ reason }) => reason),
    ['expires_at'],
  );
});

test('an expiry that the clock took back comes again after a grace of 0', () => {
  const { clock, timer, expiries } = setUp();
  timer.restart({ timeoutMs: 0, endsAt: clock.wallMs() + 1000 });
  clock.advance(1000);
  assert.equal(expiries.length, 1);
  clock.setWall(clock.wallMs() - 5000);
  assert.equal(timer.expired, undefined);
  timer.grace(0);
  clock.advance(4999);
  assert.equal(expiries.length, 1);
  clock.advance(1);
  assert.equal(expiries.length, 2);
});

test('of several ends the earliest expires, and a grace delays each', () => {
  const { clock } = setUp();
  const now = clock.wallMs();
  const ends = { lifetimeLeftMs: 30_000, endsAt: now + 20_000 };
  const first = (limits: Partial<IdleTimerOptions>): unknown => {
    const { clock: own, expiries } = setUp(limits);
    own.advance(100_000);
    return expiries[0];
  };
  assert.deepEqual(first(ends), { at: 10_000, reason: 'idle_timeout' });
  assert.deepEqual(first({ ...ends, timeoutMs: 0 }), { at: 20_000, reason: 'expires_at' });
  assert.deepEqual(first({ ...ends, timeoutMs: 0, lifetimeLeftMs: 5 }), { at: 5, reason: 'max_lifetime' });
  const passed = { timeoutMs: 0, endsAt: now - 1, graceMs: 60_000 };
  assert.deepEqual(first(passed), { at: 60_000, reason: 'expires_at' });
});

test('after an outage nothing ends before the grace has passed', () => {
  const { clock, expiries } = setUp({ idleForMs: 500_000, lifetimeLeftMs: -5_000, graceMs: 60_000 });
  clock.advance(59_999);
  assert.deepEqual(expiries, []);
  clock.advance(1);
  assert.equal(expiries.length, 1);
});

test('a timeout beyond the longest delay of setTimeout is waited for in parts', () => {
  const month = 30 * 86_400_000;
  const { clock, expiries } = setUp({ timeoutMs: month });
  clock.advance(month - 1);
  assert.deepEqual(expiries, []);
  clock.advance(1);
  assert.equal(expiries.length, 1);
});

test('a stopped timer does not expire', () => {
  const { clock, timer, expiries } = setUp();
  timer.stop();
  clock.advance(1e6);
  assert.deepEqual(expiries, []);
});

const step = fc.oneof(
  fc.record({ kind: fc.constant('wait' as const), ms: fc.integer({ min: 0, max: 15_000 }) }),
  fc.record({ kind: fc.constant('open' as const), ms: fc.constant(0) }),
  fc.record({ kind: fc.constant('close' as const), ms: fc.constant(0) }),
  fc.record({ kind: fc.constant('restart' as const), ms: fc.constantFrom(0, 3_000, 20_000) }),
);

test('for any order of requests, it expires at the same millisecond as a model', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 25 }), (steps) => {
      const { clock, timer, expiries } = setUp();
      const closers: (() => void)[] = [];
      const model = { timeoutMs: 10_000, lastActiveAt: 0, endedAt: undefined as number | undefined };
      for (const { kind, ms } of steps) {
        const now = clock.monotonicMs();
        if (kind === 'wait') {
          const end = model.lastActiveAt + model.timeoutMs;
          if (closers.length === 0 && model.timeoutMs > 0 && end <= now + ms)
            model.endedAt ??= Math.max(end, now);
          clock.advance(ms);
        } else if (kind !== 'close' || closers.length > 0) {
          if (kind === 'open') closers.push(timer.open());
          else if (kind === 'close') closers.pop()?.();
          else timer.restart({ timeoutMs: (model.timeoutMs = ms) });
          model.lastActiveAt = now;
        }
        assert.equal(expiries[0]?.at, model.endedAt);
        if (model.endedAt !== undefined) return;
      }
    }),
  );
});
