import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { LateLoads } from '../testing/requests/late-loads.ts';

const PROGRAM = fileURLToPath(new URL('../testing/requests/late-loads.ts', import.meta.url));
const OPTIONS = { timeout: 60_000, maxBuffer: 16 * 1024 * 1024 };

test('a server that was preloaded is built, and makes its document, without a file of the checkout', async () => {
  // In a process of its own: other tests have loaded here what a server needs.
  const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM], OPTIONS);
  const { byPreload, byServer, document } = JSON.parse(stdout) as LateLoads;
  assert.ok(byPreload.length > 0, 'no file was recorded while the server was preloaded');
  assert.deepEqual(byServer, []);
  assert.match(document, /^\{"openapi":"3\.1\.0"/);
});
