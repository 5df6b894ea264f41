import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { readDnsName, toHostName } from './dns-name.ts';

const bytes = (...parts: (string | number[])[]) =>
  Buffer.concat(
    parts.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : Buffer.from(part))),
  );

test('a compressed name is read like an uncompressed one', () => {
  const message = bytes('\u0003com\0', '\u0001A', [0xc0, 0], '\u0001b', [0xc0, 5], 'x');
  const name = readDnsName(message, 9);
  assert.equal(name?.wire.toString('latin1'), '\u0001b\u0001A\u0003com\0');
  assert.equal(name?.end, 13);
  assert.equal(name && toHostName(name), 'b.a.com');
});

test('pointers only point backwards, and their number is limited', () => {
  assert.equal(readDnsName(bytes([0xc0, 0]), 0), undefined);
  assert.equal(readDnsName(bytes([0, 0xc0, 3, 0]), 1), undefined);
  assert.equal(readDnsName(bytes([1, 97, 0xc0, 0]), 0), undefined);
  assert.equal(readDnsName(bytes([0xc0]), 0), undefined);
  const chain = (length: number) => bytes([0, 0], ...Array.from({ length }, (_, index) => [0xc0, 2 * index]));
  assert.ok(readDnsName(chain(16), 32));
  assert.equal(readDnsName(chain(17), 34), undefined);
});

test('the lengths of labels and names are limited', () => {
  const label = (length: number) => bytes([length], 'a'.repeat(length));
  assert.ok(readDnsName(bytes('\u003f', 'a'.repeat(63), [0]), 0));
  assert.equal(readDnsName(bytes([64], 'a'.repeat(64), [0]), 0), undefined);
  assert.equal(readDnsName(bytes([0x80, 0]), 0), undefined);
  const four = [label(63), label(63), label(63)];
  assert.ok(readDnsName(Buffer.concat([...four, label(61), Buffer.alloc(1)]), 0));
  assert.equal(readDnsName(Buffer.concat([...four, label(62), Buffer.alloc(1)]), 0), undefined);
  assert.equal(readDnsName(bytes('\u0003com'), 0), undefined, 'no end');
});

test('a name that only looks like a host name is refused', () => {
  const host = (...parts: (string | number[])[]) => {
    const name = readDnsName(bytes(...parts), 0);
    assert.ok(name);
    return toHostName(name);
  };
  assert.equal(host('\u0005A-b_c\u0003Com\0'), 'a-b_c.com');
  assert.equal(host('\u0005a.com\0'), undefined, 'a dot inside a label');
  assert.equal(host([0]), undefined);
  assert.equal(host('\u0002a\0\0'), undefined);
  assert.equal(host('\u0002\u00c3\u00a4\0'), undefined);
  assert.equal(host('\u0003127\u00011\0'), undefined);
});

test('the reader never throws and returns no overlong name', () => {
  const anyBytes = fc.uint8Array({ maxLength: 400 });
  const anyPointers = fc.array(fc.constantFrom(0xc0, 0, 1, 2, 4, 8, 97), { maxLength: 60 });
  fc.assert(
    fc.property(fc.oneof(anyBytes, anyPointers), fc.nat(60), (content, start) => {
      const message = Buffer.from(content);
      const name = readDnsName(message, start);
      if (name === undefined) return;
      assert.ok(name.wire.length <= 255 && name.end > start && name.end <= message.length);
      assert.deepEqual(readDnsName(name.wire, 0)?.wire, name.wire);
      assert.match(toHostName(name) ?? 'none', /^[a-z0-9._-]{1,253}$/u);
    }),
    { numRuns: 3000 },
  );
});
