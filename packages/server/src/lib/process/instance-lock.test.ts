import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { InstanceLockedError, lockDirectories, lockInstance } from './instance-lock.ts';

let directory = '';

before(() => {
  directory = mkdtempSync(join(tmpdir(), 'lock-'));
});
after(() => rmSync(directory, { recursive: true }));

test('a second process is refused while the first stays, and different roles do not conflict', async () => {
  await using _control = await lockInstance('control', directory);
  await using _runner = await lockInstance('runner', directory);
  await assert.rejects(lockInstance('control', directory), InstanceLockedError);
});

test('a second process waits for one that is leaving, however long that takes, and takes over', async () => {
  const first = await lockInstance('control', directory);
  first.leave();
  const second = lockInstance('control', directory);
  await delay(2_500);
  await first[Symbol.asyncDispose]();
  await (await second)[Symbol.asyncDispose]();
});

test('a service with another data directory is refused a run directory in use; the error names both settings', async () => {
  const place = (name: string, run: string) => ({
    dataDir: join(directory, name),
    runDir: join(directory, run),
  });
  const first = await lockDirectories('runner', place('a', 'run'));
  await assert.rejects(lockDirectories('runner', place('b', 'run')), {
    name: 'InstanceLockedError',
    message: /another runner has its sockets in \S+\/run,.*COPPICE_RUN_DIR unset,.*COPPICE_DATA_DIR/u,
  });
  await using _refused = await lockDirectories('runner', place('b', 'run-b'));
  await first[Symbol.asyncDispose]();
  await using _next = await lockDirectories('runner', place('c', 'run'));
});

test('one directory may be both data and run directory', async () => {
  const both = { dataDir: join(directory, 'both'), runDir: join(directory, 'both', '.') };
  await using _lock = await lockDirectories('control', both);
  await assert.rejects(lockDirectories('control', both), InstanceLockedError);
});
