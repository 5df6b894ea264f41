import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { failure, PASS } from './counts.mjs';
import { formatTotal, runSuites } from './run-suites.mjs';

test('the last line has the sum, and before it stands what failed, with its suite', async () => {
  const part = (/** @type {string} */ name, /** @type {import('./counts.mjs').Counts} */ counts) => ({
    name,
    title: '',
    run: async () => counts,
  });
  const total = await runSuites([
    part('go', PASS),
    part('unit', failure('one (a.test.ts:1)')),
    part('e2e', PASS),
  ]);
  assert.equal(formatTotal(total), 'failed:\n  unit: one (a.test.ts:1)\n2 passed, 1 failed\n');
});

test('a suite that takes longer than its budget is a failure that names both', async () => {
  const run = async () => {
    await delay(1600);
    return PASS;
  };
  const { passed, failures } = await runSuites(
    [
      { name: 'go', title: '', run: async () => PASS },
      { name: 'unit', title: '', run },
    ],
    { go: 1, unit: 1 },
  );
  assert.equal(passed, 2);
  assert.deepEqual(failures, ['unit took 2 s, more than the 1 s of scripts/test/budget.json']);
});

test('the first failures are followed by their reasons', () => {
  const failures = Array.from({ length: 9 }, (_, index) => `unit: ${index}\nError: no\n    at once`);
  const lines = formatTotal({ passed: 0, failed: 9, skipped: 0, failures }).split('\n');
  assert.deepEqual(lines.slice(1, 4), ['  unit: 0', '      Error: no', '          at once']);
  assert.deepEqual(lines.slice(-4, -2), ['          at once', '  unit: 8']);
});

test('a long list of failures is cut off, and says so', () => {
  const failures = Array.from({ length: 45 }, (_, index) => `unit: ${index}`);
  const lines = formatTotal({ passed: 0, failed: 45, skipped: 2, failures }).split('\n');
  assert.deepEqual(lines.slice(-5), ['  unit: 39', '  and 5 more', '2 skipped', '0 passed, 45 failed', '']);
});
