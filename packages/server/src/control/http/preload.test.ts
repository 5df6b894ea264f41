import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { LateLoads } from '../testing/requests/late-loads.ts';

const PROGRAM = fileURLToPath(new URL('../testing/requests/late-loads.ts', import.meta.url));
const OPTIONS = { timeout: 60_000, maxBuffer: 16 * 1024 * 1024 };

test('after a preload, a server and its document are built without loading a file of the checkout', async () => {
  // In its own process: in this one, other tests have already loaded the modules of a server.
  const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM], OPTIONS);
  const { byPreload, byServer, document } = JSON.parse(stdout) as LateLoads;
  assert.ok(byPreload.length > 0, 'no file was recorded while the server was preloaded');
  assert.deepEqual(byServer, []);
  assert.match(document, /^\{"openapi":"3\.1\.0"/);
});
