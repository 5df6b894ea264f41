import assert from 'node:assert/strict';
import { test } from 'node:test';
import { costSoFar } from './cost.ts';

const START = Date.parse('2026-11-27T10:00:00Z');
const shape = { vcpus: 1, memMiB: 1024 };

test('a running sandbox costs its billed time and the time since it runs', () => {
  const sandbox = { ...shape, billedMs: 1_800_000, runningSince: new Date(START).toISOString() };
  assert.equal(costSoFar(sandbox, START + 1_800_000), 4);
});

test('a sandbox that does not run costs no more, and a clock that is behind takes nothing away', () => {
  assert.equal(costSoFar({ ...shape, billedMs: 3_600_000, runningSince: null }, START), 4);
  const ahead = { ...shape, billedMs: 3_600_000, runningSince: new Date(START).toISOString() };
  assert.equal(costSoFar(ahead, START - 5000), 4);
});
