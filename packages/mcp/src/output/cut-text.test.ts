import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { CutText } from './cut-text.ts';

const cut = (maxLength: number, pieces: readonly (string | Uint8Array)[]): CutText => {
  const text = new CutText(maxLength);
  for (const piece of pieces) text.add(Buffer.from(piece));
  text.end();
  return text;
};

test('a text up to the limit stays whole, in whatever pieces it arrives', () => {
  const text = cut(10, ['ab', '', 'cdefg', 'hij']);
  assert.deepEqual([String(text), text.isCut, text.bytes], ['abcdefghij', false, 10]);
});

test('a longer text keeps its beginning and its end, and says how much is left out', () => {
  const text = cut(4, ['one', 'twothree', 'four']);
  assert.equal(String(text), 'on\n[… 11 of 15 characters are left out here …]\nur');
  assert.ok(text.isCut);
});

test('bytes are counted in UTF-8, and no half of a surrogate pair remains', () => {
  const text = cut(2, ['🐎🐎🐎']);
  assert.equal(text.bytes, 12);
  assert.ok(String(text).isWellFormed());
});

test('bytes that are not UTF-8 count as they are, and a character may arrive in pieces', () => {
  const broken = cut(100, [Buffer.alloc(10, 0xff)]);
  assert.deepEqual([broken.bytes, String(broken)], [10, '\uFFFD'.repeat(10)]);
  const bytes = Buffer.from('\uFEFFa🐎');
  const whole = cut(
    100,
    [...bytes].map((byte) => Buffer.from([byte])),
  );
  assert.deepEqual([whole.bytes, String(whole)], [bytes.length, '\uFEFFa🐎']);
  assert.equal(String(cut(100, [bytes.subarray(0, -1)])), '\uFEFFa\uFFFD');
});

test('any text in any pieces keeps the same beginning and end', () => {
  fc.assert(
    fc.property(fc.array(fc.string({ maxLength: 30 })), fc.integer({ min: 1, max: 20 }), (pieces, half) => {
      const whole = pieces.join('');
      const text = cut(2 * half, pieces);
      if (whole.length <= 2 * half) return String(text) === whole;
      const kept = String(text);
      return kept.startsWith(whole.slice(0, half)) && kept.endsWith(whole.slice(-half)) && text.isCut;
    }),
  );
});
