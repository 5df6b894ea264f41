import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ManualClock } from '../testing/manual-clock.ts';
import { RunnerMoments } from './runner-moments.ts';

test('before the first report, and on the same host, the moment is that of control', () => {
  const clock = new ManualClock();
  const moments = new RunnerMoments(clock);
  const here = { bootId: clock.bootId, bootMs: clock.monotonicMs(), wallMs: clock.wallMs() };
  assert.deepEqual(moments.now(), here);
  moments.note({ bootId: clock.bootId, bootMs: here.bootMs - 5 });
  assert.deepEqual(moments.now(), here);
});

test('the time of another host continues from its reports, the least late of which counts', () => {
  const clock = new ManualClock();
  const moments = new RunnerMoments(clock);
  const wallMs = clock.wallMs();
  moments.note({ bootId: 'other', bootMs: 5_000 });
  assert.deepEqual(moments.now(), { bootId: 'other', bootMs: 5_000, wallMs });
  clock.advance(1000);
  moments.note({ bootId: 'other', bootMs: 5_900 });
  assert.equal(moments.now().bootMs, 6_000);
  moments.note({ bootId: 'other', bootMs: 6_050 });
  assert.equal(moments.now().bootMs, 6_050);
});

test('after a boot of its host the earlier reports do not count', () => {
  const clock = new ManualClock();
  const moments = new RunnerMoments(clock);
  moments.note({ bootId: 'first', bootMs: 900_000 });
  moments.note({ bootId: 'second', bootMs: 10 });
  clock.advance(5);
  assert.deepEqual([moments.now().bootId, moments.now().bootMs], ['second', 15]);
});
