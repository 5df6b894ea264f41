import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { LastUse } from './last-use.ts';

function makeDirectory(context: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-last-use-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

test('a mark is read back; without one the time stamp of the directory counts', (context) => {
  const directory = makeDirectory(context);
  utimesSync(directory, 1000, 1000);
  const use = LastUse.read(directory);
  assert.equal(use.ms, 1_000_000);
  use.mark(5_000_000);
  assert.equal(LastUse.read(directory).ms, 5_000_000);
});

test('uses within a minute cost no write, but a write is never delayed for longer', (context) => {
  const directory = makeDirectory(context);
  const use = LastUse.read(directory);
  const begin = Date.now() + 3_600_000;
  use.mark(begin);
  for (let now = begin; now < begin + 59_000; now += 1000) use.mark(now);
  assert.equal(use.ms, begin + 58_000);
  assert.equal(Math.round(LastUse.read(directory).ms), begin);
  use.mark(begin + 60_000);
  assert.equal(Math.round(statSync(join(directory, 'last-used')).mtimeMs), begin + 60_000);
});

test('a clock that was set back is followed', (context) => {
  const directory = makeDirectory(context);
  const use = LastUse.read(directory);
  use.mark(9_000_000_000);
  use.mark(1_000_000_000);
  assert.deepEqual([use.ms, LastUse.read(directory).ms], [1_000_000_000, 1_000_000_000]);
});

test('marking a use in a directory that is gone does not fail', (context) => {
  const directory = makeDirectory(context);
  const use = LastUse.read(directory);
  rmSync(directory, { recursive: true });
  use.mark(Date.now() + 3_600_000);
});
