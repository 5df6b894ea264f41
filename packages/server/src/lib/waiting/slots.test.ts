import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { Slots } from './slots.ts';

const { signal } = new AbortController();

test('the allowed number runs, the next waits for a slot, and one beyond the queue limit is refused', async () => {
  const slots = new Slots('things', { maxRunning: 1, maxWaiting: 1 });
  const gate = Promise.withResolvers<void>();
  const order: string[] = [];
  const first = slots.run(signal, async () => {
    order.push('first');
    await gate.promise;
  });
  const second = slots.run(signal, async () => order.push('second'));
  await assert.rejects(
    slots.run(signal, async () => order.push('third')),
    (error) => error instanceof AppError && error.code === 'capacity',
  );
  assert.deepEqual(order, ['first']);
  gate.resolve();
  await Promise.all([first, second]);
  await slots.run(signal, async () => order.push('fourth'));
  assert.deepEqual(order, ['first', 'second', 'fourth']);
});

test('a waiter that aborts frees its place in the queue, and failed work frees its slot', async () => {
  const slots = new Slots('things', { maxRunning: 1, maxWaiting: 1 });
  const gate = Promise.withResolvers<void>();
  const first = slots.run(signal, () => gate.promise);
  const leaving = new AbortController();
  const second = slots.run(leaving.signal, async () => assert.fail('it had left'));
  leaving.abort(new Error('left'));
  await assert.rejects(second, /left/u);
  const third = slots.run(signal, async () => 'third');
  gate.reject(new Error('broken'));
  await assert.rejects(first, /broken/u);
  assert.equal(await third, 'third');
});

test('a free slot is given to the owner with the fewest slots, and one owner cannot fill the queue', async () => {
  const slots = new Slots('things', { maxRunning: 2, maxWaiting: 8, maxWaitingOfOwner: 2 });
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const order: string[] = [];
  const greedy = gates.map((gate) => slots.run(signal, () => gate.promise, 'greedy'));
  const work = (name: string) => async () => void order.push(name);
  greedy.push(slots.run(signal, work('greedy 3'), 'greedy'), slots.run(signal, work('greedy 4'), 'greedy'));
  await assert.rejects(
    slots.run(signal, work('greedy 5'), 'greedy'),
    (error) => error instanceof AppError && error.code === 'capacity',
  );
  const other = slots.run(signal, work('other'), 'other');
  gates[0]?.resolve();
  await other;
  assert.equal(order[0], 'other');
  gates[1]?.resolve();
  await Promise.all(greedy);
  assert.deepEqual(order, ['other', 'greedy 3', 'greedy 4']);
  assert.deepEqual([slots.running, slots.waiting], [0, 0]);
});

test('an owner at its limit waits while others start, and its next task starts when one of its own ends', async () => {
  const slots = new Slots('things', { maxRunning: 3, maxRunningOfOwner: 1, maxWaiting: 2 });
  const { signal } = new AbortController();
  const started: string[] = [];
  const ends = new Map<string, () => void>();
  const start = (name: string, owner: string): Promise<void> =>
    slots.run(
      signal,
      () => {
        started.push(name);
        return new Promise((resolve) => ends.set(name, resolve));
      },
      owner,
    );
  const works = [start('a1', 'a'), start('a2', 'a'), start('b1', 'b'), start('b2', 'b')];
  await assert.rejects(start('a3', 'a'), /too many things are waiting/u);
  await new Promise(setImmediate);
  assert.deepEqual(started, ['a1', 'b1']);
  ends.get('b1')?.();
  await works[2];
  await new Promise(setImmediate);
  assert.deepEqual(started, ['a1', 'b1', 'b2']);
  ends.get('a1')?.();
  await works[0];
  await new Promise(setImmediate);
  assert.deepEqual(started, ['a1', 'b1', 'b2', 'a2']);
  for (const end of ends.values()) end();
  await Promise.all(works);
  assert.deepEqual([slots.running, slots.waiting], [0, 0]);
});
