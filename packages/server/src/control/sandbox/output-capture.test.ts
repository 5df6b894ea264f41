import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { OutputBudget, OutputCapture } from './output-capture.ts';

test('whatever the pieces, what is kept is the beginning, whole characters, and at most the limit', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'grapheme' }),
      fc.integer({ min: 1, max: 7 }),
      fc.nat({ max: 60 }),
      (text, piece, max) => {
        const bytes = Buffer.from(text);
        using capture = new OutputCapture(new OutputBudget(1000), max);
        for (let start = 0; start < bytes.length; start += piece)
          capture.push(bytes.subarray(start, start + piece));
        assert.equal(capture.isTruncated, bytes.length > max);
        assert.ok(text.startsWith(capture.text));
        assert.ok(Buffer.byteLength(capture.text) <= max);
        assert.ok(Buffer.byteLength(capture.text) > Math.min(max, bytes.length) - 4);
      },
    ),
  );
});

test('captures share a budget and give it back', () => {
  const budget = new OutputBudget(10);
  {
    using first = new OutputCapture(budget, 100);
    first.push(Buffer.from('12345678'));
    using second = new OutputCapture(budget, 100);
    second.push(Buffer.from('abc'));
    assert.equal(second.text, 'ab');
    assert.ok(second.isTruncated);
  }
  assert.equal(budget.take(100), 10);
});

test('a million single bytes cost a few bytes each', () => {
  const before = process.memoryUsage();
  using capture = new OutputCapture(new OutputBudget(1 << 20), 1 << 20);
  for (let count = 0; count < 1 << 20; count += 1) capture.push(Buffer.from('a'));
  const now = process.memoryUsage();
  const grownBytes = now.heapUsed + now.arrayBuffers - before.heapUsed - before.arrayBuffers;
  assert.equal(capture.text.length, 1 << 20);
  assert.ok(grownBytes < 48 << 20, `${grownBytes} bytes more`);
});
