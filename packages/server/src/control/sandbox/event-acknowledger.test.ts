import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventAcknowledger } from './event-acknowledger.ts';

const place = (seq: number, generation = 'a') => ({ generation, seq });

test('an event is acknowledged after all earlier events are handled, many events by one call', async () => {
  const acknowledged: number[] = [];
  const acknowledger = new EventAcknowledger(async ({ seq }) => {
    await new Promise(setImmediate);
    acknowledged.push(seq);
  });
  const first = Promise.withResolvers<void>();
  const taken = [acknowledger.take(place(1), first.promise)];
  for (let seq = 2; seq <= 500; seq += 1) taken.push(acknowledger.take(place(seq), Promise.resolve()));
  await new Promise(setImmediate);
  assert.deepEqual(acknowledged, []);
  first.resolve();
  await Promise.all(taken);
  assert.equal(acknowledged.at(-1), 500);
  assert.ok(acknowledged.length < 10, `${acknowledged.length} calls`);
});

test('an event that arrives as the last acknowledgement ends is acknowledged, too', async () => {
  const acknowledged: number[] = [];
  const acknowledger = new EventAcknowledger(async ({ seq }) => void acknowledged.push(seq));
  for (let seq = 1; seq <= 100; seq += 1) await acknowledger.take(place(seq), Promise.resolve());
  assert.deepEqual(
    acknowledged,
    Array.from({ length: 100 }, (_, index) => index + 1),
  );
});

test('after an event that could not be handled, no event is acknowledged', async () => {
  const acknowledged: number[] = [];
  const acknowledger = new EventAcknowledger(async ({ seq }) => void acknowledged.push(seq));
  const outcomes = await Promise.allSettled([
    acknowledger.take(place(1), Promise.resolve()),
    acknowledger.take(place(2), Promise.reject(new Error('away'))),
    acknowledger.take(place(3), Promise.resolve()),
  ]);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ['fulfilled', 'rejected', 'rejected'],
  );
  assert.deepEqual(acknowledged, [1]);
});

test('the first event of a new spool is acknowledged by its generation, although its number is lower', async () => {
  const acknowledged: string[] = [];
  const acknowledger = new EventAcknowledger(async ({ generation, seq }) => {
    acknowledged.push(`${generation} ${seq}`);
  });
  await acknowledger.take(place(7), Promise.resolve());
  await acknowledger.take(place(1, 'b'), Promise.resolve());
  assert.deepEqual(acknowledged, ['a 7', 'b 1']);
});
