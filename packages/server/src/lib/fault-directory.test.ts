import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { armFaults, holdAt, wallMs } from './fault-directory.ts';

let directory = '';

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'faults-'));
});
afterEach(() => {
  armFaults(undefined);
  rmSync(directory, { recursive: true });
});

test('without the setting no step is held, whatever files exist', () => {
  writeFileSync(join(directory, 'hold-a'), '');
  assert.equal(holdAt('a'), undefined);
});

test('a held step waits until it is released, and holds only one arrival', async () => {
  armFaults(directory);
  assert.equal(holdAt('a'), undefined);
  writeFileSync(join(directory, 'hold-a'), '');
  let isThrough = false;
  const first = holdAt('a')?.then(() => (isThrough = true));
  assert.ok(existsSync(join(directory, 'at-a')));
  await holdAt('a');
  assert.equal(isThrough, false);
  rmSync(join(directory, 'hold-a'));
  await first;
  assert.equal(isThrough, true);
});

test('the file moves the wall clock, but only with the setting', () => {
  writeFileSync(join(directory, 'wall-offset-ms'), '3600000');
  assert.ok(Math.abs(wallMs() - Date.now()) < 1000);
  armFaults(directory);
  assert.ok(Math.abs(wallMs() - Date.now() - 3_600_000) < 1000);
});
