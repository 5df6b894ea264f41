import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WriteQueue } from './write-queue.ts';

test('a writer waits while much is not drawn, and continues when little is left', async () => {
  const done: (() => void)[] = [];
  const queue = new WriteQueue((_, drawn) => done.push(drawn));
  const chunk = new Uint8Array(64 * 1024);
  for (let written = 0; written < 8; written += 1) await queue.write(chunk);
  let isFree = false;
  const waiting = queue.write(chunk).then(() => (isFree = true));
  for (const drawn of done.splice(0, 6)) drawn();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isFree, false, 'it continued too early');
  for (const drawn of done.splice(0)) drawn();
  await waiting;
});
