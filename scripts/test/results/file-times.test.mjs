import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { REPOSITORY } from '../../setup/paths.mjs';
import { describeFileTimes, measureFileTimes } from './file-times.mjs';

/** @typedef {import('./event-reporter.mjs').TestEvent} TestEvent */

/** @type {(file: string, ...moments: [TestEvent['kind'], number][]) => TestEvent[]} */
const events = (file, ...moments) =>
  moments.map(([kind, atMs]) => ({ kind, atMs, name: 'a test', file: join(REPOSITORY, file) }));

test('files are listed by their time from the start of the first test to the end of the last', () => {
  const short = events('e2e/short.test.ts', ['begin', 1000], ['end', 1600], ['pass', 9000]);
  const long = events('e2e/long.test.ts', ['begin', 1600], ['pass', 5000], ['begin', 5000], ['end', 13_700]);
  assert.equal(
    describeFileTimes(measureFileTimes([...short, ...long])),
    'longest:\n     12.1 s  e2e/long.test.ts\n      0.6 s  e2e/short.test.ts\n',
  );
});

test('a single file is not listed', () => {
  assert.equal(describeFileTimes(new Map([['a.test.ts', 10]])), '');
});
