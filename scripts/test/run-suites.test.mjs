import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failure, NOTHING, PASS } from './results/counts.mjs';
import { formatTotal, judgeTime, runSuites } from './run-suites.mjs';

test('the last line has the totals, and the failures stand before it, each with its suite', async () => {
  /** @type {(suite: string, counts: import('./results/counts.mjs').Counts) => import('./jobs/run-jobs.mjs').Job} */
  const jobOf = (suite, counts) => ({
    suite,
    title: suite,
    place: 'beside',
    seconds: 1,
    run: async ({ print }) => {
      print(`output of ${suite}`);
      return { counts, times: new Map([[`${suite}.test.ts`, 2]]) };
    },
  });
  const jobs = [jobOf('go', PASS), jobOf('unit', failure('one (a.test.ts:1)')), jobOf('e2e', PASS)];
  /** @type {string[]} */
  const kept = [];
  const keepTimes = (/** @type {ReadonlyMap<string, number>} */ times) => void kept.push(...times.keys());
  const total = await runSuites(jobs, { lanes: 1, keepTimes });
  assert.equal(formatTotal(total), 'failed:\n  unit: one (a.test.ts:1)\n2 passed, 1 failed\n');
  assert.deepEqual(kept.toSorted(), ['e2e.test.ts', 'go.test.ts', 'unit.test.ts']);
});

test('a job that throws is a failure with its reason, and the others run', async () => {
  /** @type {(title: string, run: import('./jobs/run-jobs.mjs').Job['run']) => import('./jobs/run-jobs.mjs').Job} */
  const jobOf = (title, run) => ({ suite: 'unit', title, place: 'lane', seconds: 1, run });
  const jobs = [
    jobOf('breaks', async () => Promise.reject(new Error('no record'))),
    jobOf('runs', async () => ({ counts: PASS })),
  ];
  const { passed, failures } = await runSuites(jobs, { lanes: 1 });
  assert.equal(passed, 1);
  assert.match(failures[0] ?? '', /^unit: breaks did not end: [^]*no record/u);
});

test('a run longer than the budget is a failure, and a slower machine has a longer budget', () => {
  const budget = { seconds: 100, reference_ms: 50 };
  assert.equal(judgeTime(100, 50, budget), NOTHING);
  assert.equal(judgeTime(199, 100, budget), NOTHING);
  assert.equal(judgeTime(100, 25, budget), NOTHING, 'a faster machine has the same budget');
  assert.deepEqual(judgeTime(250, 100, budget).failures, [
    'the tests took 250 s, more than 200 s: the 100 s of scripts/test/budget.json on a machine that is 2.00 times slower',
  ]);
});

test('the first failures are followed by their reasons', () => {
  const failures = Array.from({ length: 9 }, (_, index) => `unit: ${index}\nError: no\n    at once`);
  const lines = formatTotal({ passed: 0, failed: 9, skipped: 0, failures }).split('\n');
  assert.deepEqual(lines.slice(1, 4), ['  unit: 0', '      Error: no', '          at once']);
  assert.deepEqual(lines.slice(-4, -2), ['          at once', '  unit: 8']);
});

test('what failed comes before what was cancelled for it', () => {
  const cancelled = "e2e: one\n'test did not finish before its parent and was cancelled'";
  const failures = [...Array.from({ length: 40 }, () => cancelled), 'e2e: all\nError: no network'];
  const lines = formatTotal({ passed: 0, failed: 41, skipped: 0, failures }).split('\n');
  assert.deepEqual(lines.slice(1, 4), ['  e2e: all', '      Error: no network', '  e2e: one']);
});

test('a long list of failures is cut off and ends with the number of the rest', () => {
  const failures = Array.from({ length: 45 }, (_, index) => `unit: ${index}`);
  const lines = formatTotal({ passed: 0, failed: 45, skipped: 2, failures }).split('\n');
  assert.deepEqual(lines.slice(-5), ['  unit: 39', '  and 5 more', '2 skipped', '0 passed, 45 failed', '']);
});
