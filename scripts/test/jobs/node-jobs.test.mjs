import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { test } from 'node:test';
import { REPOSITORY } from '../../setup/paths.mjs';
import { readTimes } from '../results/file-times.mjs';
import { cut, divide, planBatches, planMachineJobs, PLACES } from './node-jobs.mjs';

const DIRECTORY = join(REPOSITORY, 'e2e');
const FILES = readdirSync(DIRECTORY, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => join(DIRECTORY, name));

const SHORT_TIMES = new Map(FILES.map((file) => [relative(REPOSITORY, file), 1]));

/** @param {ReadonlyMap<string, number>} times */
async function planFiles(times = new Map()) {
  const jobs = await planMachineJobs({ suite: 'e2e', node: '', files: FILES, times, env: {} });
  return jobs.map(({ title, place, seconds }) => ({
    names: title.split(' ').map((path) => basename(path)),
    place,
    seconds,
  }));
}

test('every file is in exactly one job, and files that share a service are in the same job', async () => {
  const jobs = await planFiles(SHORT_TIMES);
  assert.deepEqual(
    jobs.flatMap(({ names }) => names).toSorted(),
    FILES.map((file) => basename(file)).toSorted(),
  );
  const elsewhere = jobs.filter(({ place }) => place !== 'lane');
  assert.deepEqual(
    new Map(elsewhere.flatMap(({ names, place }) => names.map((name) => [name, place]))),
    PLACES,
  );
  const jobOf = (/** @type {string} */ name) => jobs.find(({ names }) => names.includes(name));
  assert.equal(jobOf('exec.test.ts'), jobOf('sdk.test.ts'));
  assert.notEqual(jobOf('exec.test.ts'), jobOf('egress-live.test.ts'));
  assert.equal(jobOf('faults.test.ts')?.names.length, 1);
});

test('files that share a service are cut into parts of about the same duration, in their order', () => {
  const files = ['a', 'b', 'c', 'd', 'e', 'f'];
  const parts = (/** @type {number[]} */ ...seconds) =>
    cut(files, (file) => seconds[files.indexOf(file)] ?? 0).map((part) => part.join(''));
  assert.deepEqual(parts(100, 100, 100, 100, 100, 100), ['abcdef']);
  assert.deepEqual(parts(300, 300, 300, 300, 300, 300), ['abc', 'def']);
  assert.deepEqual(parts(1200, 100, 100, 100, 100, 100), ['a', 'bcdef']);
  assert.deepEqual(parts(1, 1, 4000, 1, 1, 1), ['ab', 'c', 'def']);
});

test('no job of many files takes longer than its time limit allows', async () => {
  const jobs = await planFiles(readTimes());
  for (const { names, seconds } of jobs)
    assert.ok(names.length === 1 || seconds < 1200, `${seconds} s: ${names.join(' ')}`);
});

test('the time of a job is the sum of its files, and a file never measured does not come last', async () => {
  const times = new Map([
    ['e2e/faults/faults.test.ts', 70],
    ['e2e/sandbox/idle.test.ts', 5],
  ]);
  const jobs = await planFiles(times);
  const secondsOf = (/** @type {string} */ name) => jobs.find(({ names }) => names[0] === name)?.seconds;
  assert.equal(secondsOf('faults.test.ts'), 70);
  assert.ok(Number(secondsOf('doctor.test.ts')) > 5);
});

test('unit test files are divided into processes of about the same duration', () => {
  const files = Array.from({ length: 90 }, (_, index) => join(REPOSITORY, `${index}.test.ts`));
  const times = new Map(files.map((file, index) => [relative(REPOSITORY, file), index === 7 ? 100 : 1]));
  const batches = divide({ files, times });
  assert.deepEqual(batches.flatMap((batch) => batch.files).toSorted(), files.toSorted());
  assert.equal(batches.length, 4);
  assert.deepEqual(batches.find(({ seconds }) => seconds === 100)?.files, [files[7]]);
  const others = batches.filter(({ seconds }) => seconds < 100).map(({ seconds }) => seconds);
  assert.ok(Math.max(...others) - Math.min(...others) <= 1, others.join(' '));
  assert.deepEqual(divide({ files: [], times }), []);
});

test('only the simulation is a spare job, in a process of its own', () => {
  const simulation = 'packages/server/src/control/testing/simulation/simulation.test.ts';
  assert.ok(existsSync(join(REPOSITORY, simulation)));
  const files = [simulation, 'scripts/a.test.mjs', 'scripts/b.test.mjs'].map((path) =>
    join(REPOSITORY, path),
  );
  const jobs = planBatches({ suite: 'unit', node: '', wrapper: [], files, times: new Map(), env: {} });
  assert.deepEqual(
    jobs.map(({ place, title }) => [place, title]),
    [
      ['beside', 'unit 1 of 2'],
      ['spare', 'unit 2 of 2'],
    ],
  );
});
