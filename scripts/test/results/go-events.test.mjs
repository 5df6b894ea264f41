import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GoEvents } from './go-events.mjs';

/** @param {object[]} events */
function feed(events) {
  let written = '';
  const parser = new GoEvents((text) => (written += text));
  for (const event of events) parser.accept(JSON.stringify(event));
  return { counts: parser.counts, written: () => written, parser };
}

test('tests are counted, and only failed tests are shown with their output', () => {
  const { counts, written } = feed([
    { Action: 'output', Package: 'p', Test: 'TestGood', Output: 'quiet\n' },
    { Action: 'pass', Package: 'p', Test: 'TestGood' },
    { Action: 'output', Package: 'p', Test: 'TestBad', Output: 'bad_test.go:3: no\n' },
    { Action: 'fail', Package: 'p', Test: 'TestBad' },
    { Action: 'fail', Package: 'p' },
    { Action: 'pass', Package: 'q', Elapsed: 0.1 },
  ]);
  assert.deepEqual(counts, { passed: 1, failed: 1, skipped: 0, failures: ['TestBad (p)'] });
  assert.match(written(), /bad_test\.go:3: no/);
  assert.doesNotMatch(written(), /quiet/);
});

test('a skipped test is counted and shown with the reason', () => {
  const { counts, written } = feed([
    { Action: 'output', Package: 'p', Test: 'TestRoot', Output: 'root_test.go:9: by root only\n' },
    { Action: 'skip', Package: 'p', Test: 'TestRoot' },
  ]);
  assert.deepEqual(counts, { passed: 0, failed: 0, skipped: 1, failures: [] });
  assert.match(written(), /by root only/);
});

test('a package that does not build counts as one failure, with the reason', () => {
  const { counts, written } = feed([
    { Action: 'build-output', ImportPath: 'p', Output: 'syntax error\n' },
    { Action: 'build-fail', ImportPath: 'p' },
    { Action: 'fail', Package: 'p' },
  ]);
  assert.deepEqual([counts.passed, counts.failed, counts.failures.length], [0, 1, 1]);
  assert.match(written(), /syntax error/);
});

test('lines that are not events are written unchanged', () => {
  const { parser, written } = feed([]);
  parser.accept('go: module not found');
  parser.accept('{broken');
  assert.equal(written(), 'go: module not found\n{broken\n');
});

test('a test that began and did not end is listed as unfinished', () => {
  const { parser } = feed([
    { Action: 'run', Package: 'p', Test: 'TestGood' },
    { Action: 'run', Package: 'p', Test: 'TestStuck' },
    { Action: 'pass', Package: 'p', Test: 'TestGood' },
  ]);
  assert.deepEqual(parser.unfinished, ['TestStuck (p)']);
});
