import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { InstanceLockedError, lockInstance } from './instance-lock.ts';

let directory = '';

before(() => {
  directory = mkdtempSync(join(tmpdir(), 'lock-'));
});
after(() => rmSync(directory, { recursive: true }));

test('a second process is refused while the first stays, and named roles do not meet', async () => {
  await using _control = await lockInstance('control', directory);
  await using _runner = await lockInstance('runner', directory);
  await assert.rejects(lockInstance('control', directory), InstanceLockedError);
});

test('a second process takes over from one that is leaving, however long that takes', async () => {
  const first = await lockInstance('control', directory);
  first.leave();
  const second = lockInstance('control', directory);
  await delay(2_500);
  await first[Symbol.asyncDispose]();
  await (await second)[Symbol.asyncDispose]();
});
