import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as immediate } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import { stretchDeadlines } from '../../lib/waiting/deadline.ts';
import { Turns } from './turns.ts';

const isCapacity = (error: unknown): boolean => error instanceof AppError && error.code === 'capacity';

function open(more: Partial<{ maxWaiting: number; maxWaitMs: number }> = {}): Turns {
  return new Turns({ maxRunning: 1, maxWaiting: 2, maxWaitMs: 10_000, ...more });
}

test('starts run one after another, in the order of their requests', async () => {
  const turns = open();
  const order: number[] = [];
  const first = Promise.withResolvers<undefined>();
  const work = (number: number) => turns.run(undefined, async () => void order.push(number));
  const all = [turns.run(undefined, () => first.promise), work(2), work(3)];
  await immediate();
  assert.deepEqual([turns.running, turns.waiting, turns.isFull], [1, 2, true]);
  first.resolve(undefined);
  await Promise.all(all);
  assert.deepEqual(order, [2, 3]);
  assert.deepEqual([turns.running, turns.waiting, turns.isFull], [0, 0, false]);
});

test('a start is refused immediately when the queue is full', async () => {
  const turns = open({ maxWaiting: 0 });
  const first = Promise.withResolvers<undefined>();
  const running = turns.run(undefined, () => first.promise);
  await assert.rejects(
    turns.run(undefined, async () => undefined),
    isCapacity,
  );
  first.resolve(undefined);
  await running;
  assert.deepEqual([turns.running, turns.waiting], [0, 0]);
});

test('a start that waits too long is refused and leaves the queue to the others', async () => {
  const turns = open({ maxWaitMs: 20 });
  const first = Promise.withResolvers<undefined>();
  const running = turns.run(undefined, () => first.promise);
  await assert.rejects(
    turns.run(undefined, async () => undefined),
    isCapacity,
  );
  assert.equal(turns.waiting, 0);
  first.resolve(undefined);
  await running;
  assert.equal(await turns.run(undefined, async () => 'next'), 'next');
});

test('an aborted wait ends with the reason of its signal', async () => {
  const turns = open();
  const first = Promise.withResolvers<undefined>();
  const running = turns.run(undefined, () => first.promise);
  const left = new AbortController();
  const waiting = turns.run(left.signal, async () => undefined);
  left.abort(new Error('destroyed'));
  await assert.rejects(waiting, /destroyed/u);
  first.resolve(undefined);
  await running;
});

test('the deadline does not interrupt running work, and failed work frees its start slot', async () => {
  const turns = open({ maxWaitMs: 1 });
  await assert.rejects(
    turns.run(undefined, async () => {
      await new Promise((resolve) => setTimeout(resolve, 10));
      throw new Error('failed by itself');
    }),
    /failed by itself/u,
  );
  assert.equal(turns.running, 0);
});

test('on a slower host the wait for a start slot is longer, and the refusal says how long', async () => {
  stretchDeadlines(100);
  try {
    const turns = open({ maxWaitMs: 20 });
    const first = Promise.withResolvers<undefined>();
    const running = turns.run(undefined, () => first.promise);
    const wait = turns.run(undefined, async () => undefined);
    await assert.rejects(wait, /no start slot was free within 2 s/u);
    first.resolve(undefined);
    await running;
  } finally {
    stretchDeadlines(1);
  }
});
