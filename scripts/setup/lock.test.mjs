import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { withLock } from './lock.mjs';

test('a second holder waits for the first, and gets the lock also when the first fails', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'lock-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const file = { path: join(directory, 'lock'), flags: /** @type {const} */ ('a') };
  /** @type {string[]} */
  const order = [];
  /** @type {() => void} */
  let release = () => assert.fail('the lock was not taken');
  /** @type {() => void} */
  let taken = () => assert.fail('the test does not wait for the lock yet');
  const firstHolds = new Promise((resolve) => (taken = () => resolve(undefined)));
  const first = withLock(file, async () => {
    taken();
    await new Promise((resolve) => (release = () => resolve(undefined)));
    order.push('first');
    throw new Error('first failed');
  });
  await firstHolds;
  const second = withLock(file, () => Promise.resolve(order.push('second')));
  release();
  await assert.rejects(first, /first failed/);
  await second;
  assert.deepEqual(order, ['first', 'second']);
});
