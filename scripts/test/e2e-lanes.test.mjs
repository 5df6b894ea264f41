import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { test } from 'node:test';
import { REPOSITORY } from '../setup/paths.mjs';
import { ALONE, planLanes, runInLanes } from './e2e-lanes.mjs';

const DIRECTORY = join(REPOSITORY, 'e2e');
const FILES = readdirSync(DIRECTORY)
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => join(DIRECTORY, name));

test('every file is in one job, and those that share a service are in the same', async () => {
  const { together, alone } = await planLanes(FILES, new Map());
  assert.deepEqual([...together.flat(), ...alone].toSorted(), FILES.toSorted());
  assert.deepEqual(alone.map((file) => basename(file)).toSorted(), [...ALONE].toSorted());
  const jobOf = (/** @type {string} */ name) => together.find((job) => job.includes(join(DIRECTORY, name)));
  assert.equal(jobOf('exec.test.ts'), jobOf('sdk.test.ts'));
  assert.equal(jobOf('egress-live.test.ts'), jobOf('egress-bypass.test.ts'));
  assert.equal(jobOf('faults.test.ts')?.length, 1);
});

test('the job that took longest is the first, and one that nobody has measured is not the last', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-lanes-'));
  const written = ['short', 'new', 'long'].map((name) => join(directory, `${name}.test.ts`));
  for (const file of written) writeFileSync(file, '');
  const times = new Map([
    [relative(REPOSITORY, join(directory, 'short.test.ts')), 5],
    [relative(REPOSITORY, join(directory, 'long.test.ts')), 500],
  ]);
  const { together } = await planLanes(written, times);
  rmSync(directory, { recursive: true });
  assert.deepEqual(
    together.flat().map((file) => basename(file)),
    ['long.test.ts', 'new.test.ts', 'short.test.ts'],
  );
});

test('each lane takes the next job when it is done with one', async () => {
  const jobs = [['long'], ['a'], ['b'], ['c']];
  const othersDone = new EventEmitter();
  /** @type {string[]} */
  const order = [];
  await runInLanes(jobs, 2, async ([name], lane) => {
    if (name === 'long') await once(othersDone, 'done');
    order.push(`${name} in ${lane}`);
    if (name === 'c') othersDone.emit('done');
  });
  assert.deepEqual(order, ['a in 1', 'b in 1', 'c in 1', 'long in 0']);
  assert.equal(jobs.length, 4);
});
