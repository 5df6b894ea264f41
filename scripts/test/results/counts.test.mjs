import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addCounts, failure, NOTHING, PASS, withExitCode } from './counts.mjs';

test('a run that exits with an error, or runs no test, is a failure', () => {
  const bad = addCounts(PASS, failure('one (a.test.ts:1)'));
  assert.equal(withExitCode(PASS, 0).failed, 0);
  assert.equal(withExitCode(PASS, 1).failed, 1);
  assert.equal(withExitCode(bad, 1).failed, 1);
  assert.equal(withExitCode(NOTHING, 0).failed, 1);
});

test('each counted failure has a text', () => {
  const counts = addCounts(withExitCode(NOTHING, 0), failure('one (a.test.ts:1)'));
  assert.equal(counts.failures.length, counts.failed);
});
