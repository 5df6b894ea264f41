import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventAcknowledger } from './event-acknowledger.ts';

test('nothing is acknowledged before all that came earlier is handled, and much by one call', async () => {
  const acknowledged: number[] = [];
  const acknowledger = new EventAcknowledger(async (seq) => {
    await new Promise(setImmediate);
    acknowledged.push(seq);
  });
  const first = Promise.withResolvers<void>();
  const taken = [acknowledger.take(1, first.promise)];
  for (let seq = 2; seq <= 500; seq += 1) taken.push(acknowledger.take(seq, Promise.resolve()));
  await new Promise(setImmediate);
  assert.deepEqual(acknowledged, []);
  first.resolve();
  await Promise.all(taken);
  assert.equal(acknowledged.at(-1), 500);
  assert.ok(acknowledged.length < 10, `${acknowledged.length} calls`);
});

test('what comes as the last acknowledgement ends is acknowledged, too', async () => {
  const acknowledged: number[] = [];
  const acknowledger = new EventAcknowledger(async (seq) => void acknowledged.push(seq));
  for (let seq = 1; seq <= 100; seq += 1) await acknowledger.take(seq, Promise.resolve());
  assert.deepEqual(
    acknowledged,
    Array.from({ length: 100 }, (_, index) => index + 1),
  );
});

test('after one that could not be handled nothing is acknowledged any more', async () => {
  const acknowledged: number[] = [];
  const acknowledger = new EventAcknowledger(async (seq) => void acknowledged.push(seq));
  const outcomes = await Promise.allSettled([
    acknowledger.take(1, Promise.resolve()),
    acknowledger.take(2, Promise.reject(new Error('away'))),
    acknowledger.take(3, Promise.resolve()),
  ]);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ['fulfilled', 'rejected', 'rejected'],
  );
  assert.deepEqual(acknowledged, [1]);
});
