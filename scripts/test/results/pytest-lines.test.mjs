import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PytestLines } from './pytest-lines.mjs';

test('the lines of pytest are counted and shown', () => {
  const shown = /** @type {string[]} */ ([]);
  const lines = new PytestLines((line) => shown.push(line));
  const output = [
    'tests/test_audit.py::test_one PASSED                       [  1%]',
    'tests/test_audit.py::test_two[a PASSED b] FAILED           [ 50%]',
    'tests/test_audit.py::test_three ERROR                      [ 75%]',
    'tests/test_audit.py::test_four SKIPPED (why)               [100%]',
    'FAILED tests/test_audit.py::test_two[a PASSED b] - AssertionError',
    '1 passed, 1 failed',
  ];
  for (const line of output) lines.accept(line);
  assert.deepEqual(lines.counts, {
    passed: 1,
    failed: 2,
    skipped: 1,
    failures: [
      'clients/python/tests/test_audit.py::test_two[a PASSED b]',
      'clients/python/tests/test_audit.py::test_three',
    ],
  });
  assert.deepEqual(shown, output);
});
