import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { shareLimit } from '../limits/share.ts';
import { AttemptLimiter } from './attempt-limiter.ts';

function build(limit: number, controls = 1) {
  const clock = { now: 1_000_000 };
  const limiter = new AttemptLimiter(
    { what: 'tries', limit, share: (whole) => shareLimit(whole, controls), windowMs: 60_000 },
    () => clock.now,
  );
  return { clock, limiter };
}

test('the attempt beyond the limit is refused with the seconds until the window ends', () => {
  const { clock, limiter } = build(2);
  limiter.take('a');
  clock.now += 10_500;
  limiter.take('a');
  assert.throws(
    () => limiter.take('a'),
    (error) =>
      error instanceof AppError && error.code === 'rate_limited' && error.details?.['retryAfterS'] === 50,
  );
  limiter.take('b');
});

test('a new window begins when the last one is over', () => {
  const { clock, limiter } = build(1);
  limiter.take('a');
  clock.now += 60_000;
  limiter.take('a');
});

test('an attempt that is given back does not count', () => {
  const { limiter } = build(1);
  for (let round = 0; round < 5; round += 1) {
    limiter.take('a');
    limiter.giveBack('a');
  }
  limiter.take('a');
  assert.throws(() => limiter.take('a'));
});

test('only a bounded number of names is remembered: the newest', () => {
  const { limiter } = build(1);
  limiter.take('first');
  for (let name = 0; name < 100_000; name += 1) limiter.take(`name ${name}`);
  limiter.take('first');
  assert.throws(() => limiter.take('name 99999'));
});

test('each of several controls grants its share of the attempts', () => {
  const limiters = [build(7, 3).limiter, build(7, 3).limiter, build(7, 3).limiter];
  const granted = limiters.map((limiter) => {
    let count = 0;
    for (let attempt = 0; attempt < 7; attempt += 1) {
      try {
        limiter.take('a');
        count += 1;
      } catch (error) {
        assert.ok(error instanceof AppError && error.code === 'rate_limited');
      }
    }
    return count;
  });
  assert.deepEqual(granted, [2, 2, 2]);
});
