import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseRefusedKind, REFUSED_SETS } from './refused-packets.ts';
import { countNew } from './refused-reader.ts';

test('a packet that was counted before is not new, unless the element is another one', () => {
  const now = { packets: 5, remainingMs: 40_000 };
  assert.equal(countNew(undefined, now), 5);
  assert.equal(countNew({ packets: 3, remainingMs: 41_000 }, now), 2);
  assert.equal(countNew({ packets: 5, remainingMs: 40_000 }, now), 0);
  assert.equal(countNew({ packets: 5, remainingMs: 100 }, now), 5, 'it came back after its end');
  assert.equal(countNew({ packets: 9, remainingMs: 41_000 }, now), 5, 'the table was replaced');
});

test('any bytes can be read as a key', () => {
  const anyBytes = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
  fc.assert(
    fc.property(anyBytes, fc.constantFrom(...REFUSED_SETS), (key, set) => {
      parseRefusedKind(set, { key });
    }),
  );
});
