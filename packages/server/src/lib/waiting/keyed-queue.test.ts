import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { KeyedQueue } from './keyed-queue.ts';

test('tasks of one key run one after the other, and those of others at the same time', async () => {
  const queue = new KeyedQueue();
  const done: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = queue.run('a', async () => {
    await gate.promise;
    done.push('a1');
  });
  const second = queue.run('a', () => Promise.resolve(done.push('a2')));
  await queue.run('b', () => Promise.resolve(done.push('b')));
  gate.resolve();
  await Promise.all([first, second]);
  assert.deepEqual(done, ['b', 'a1', 'a2']);
});

test('a failed task does not stop the next one', async () => {
  const queue = new KeyedQueue();
  const failed = queue.run('a', () => Promise.reject(new Error('no')));
  const next = queue.run('a', () => Promise.resolve('yes'));
  await assert.rejects(failed, /no/u);
  assert.equal(await next, 'yes');
});

test('a signal ends the wait at once, and a task that waited is not begun', async () => {
  const queue = new KeyedQueue();
  const gate = Promise.withResolvers<void>();
  const stop = new AbortController();
  let begun = 0;
  const first = queue.run('a', () => gate.promise, stop.signal);
  const second = queue.run('a', () => Promise.resolve((begun += 1)), stop.signal);
  stop.abort(new Error('stopped'));
  await assert.rejects(first, /stopped/u);
  await assert.rejects(second, /stopped/u);
  gate.resolve();
  await delay(1);
  assert.equal(begun, 0);
  assert.equal(await queue.run('a', () => Promise.resolve('free')), 'free');
});
