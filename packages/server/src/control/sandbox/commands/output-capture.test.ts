import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { measureMemory } from '../../../lib/testing/measure-memory.ts';
import { BLOCK_BYTES, OutputCapture, type BlockSource } from './output-capture.ts';

/** Returns a source with so many blocks. */
function sourceOf(blocks: number): BlockSource & { left: number } {
  return {
    left: blocks,
    take() {
      if (this.left === 0) return false;
      this.left -= 1;
      return true;
    },
    give() {
      this.left += 1;
    },
  };
}

test('for any pieces the capture keeps the beginning, in whole characters, up to the limit', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'grapheme' }),
      fc.integer({ min: 1, max: 7 }),
      fc.nat({ max: 60 }),
      (text, piece, max) => {
        const bytes = Buffer.from(text);
        using capture = new OutputCapture(sourceOf(0), max);
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

test('the first block is always available, further ones while the source has any, and all are given back', () => {
  const sizes = fc.array(fc.integer({ min: 0, max: 3 * BLOCK_BYTES }), { maxLength: 8 });
  fc.assert(
    fc.property(sizes, fc.nat({ max: 5 }), (pieces, blocks) => {
      const source = sourceOf(blocks);
      const written = Buffer.concat(pieces.map((size, index) => Buffer.alloc(size, 97 + index)));
      {
        using capture = new OutputCapture(source, 16 << 20);
        let start = 0;
        for (const size of pieces) capture.push(written.subarray(start, (start += size)));
        const room = (1 + blocks) * BLOCK_BYTES;
        assert.equal(capture.text, written.subarray(0, room).toString());
        assert.equal(capture.isTruncated, written.length > room);
      }
      assert.equal(source.left, blocks);
    }),
    { numRuns: 50 },
  );
});

test('after a piece that did not fit nothing is kept, even when there is room again', () => {
  const source = sourceOf(0);
  using capture = new OutputCapture(source, 16 << 20);
  capture.push(Buffer.alloc(BLOCK_BYTES + 1, 'a'));
  source.left = 1;
  capture.push(Buffer.from('b'));
  assert.equal(capture.text, 'a'.repeat(BLOCK_BYTES));
  assert.ok(capture.isTruncated);
});

test('a million single bytes cost a few bytes each', async () => {
  const before = await measureMemory();
  using capture = new OutputCapture(sourceOf(100), 1 << 20);
  for (let count = 0; count < 1 << 20; count += 1) capture.push(Buffer.from('a'));
  const grownBytes = (await measureMemory()) - before;
  assert.equal(capture.text.length, 1 << 20);
  assert.ok(grownBytes < 8 << 20, `${grownBytes} bytes more`);
});
