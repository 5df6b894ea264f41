import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { LateLoads } from '../testing/late-loads.ts';

test('a server that was preloaded is built, and makes its document, without a file of the checkout', async () => {
  const child = fork(fileURLToPath(new URL('../testing/late-loads.ts', import.meta.url)));
  const [{ whilePreloaded, later, document }] = (await once(child, 'message')) as [LateLoads];
  assert.ok(whilePreloaded.length > 0, 'what is loaded late is seen');
  assert.deepEqual(later, []);
  assert.match(document, /^\{"openapi":"3\.1\.0"/);
});
