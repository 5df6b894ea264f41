import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isIpv4, MAX_IP, parseIpAddress } from './ip-address.ts';
import {
  buildIpRange,
  buildRangeTable,
  containsRange,
  findCovering,
  findRange,
  parseIpRange,
} from './ip-range.ts';

/** Few enough addresses that ranges meet, in both families. */
const address = fc.oneof(
  fc.nat(0x3ff).map((value) => MAX_IP - BigInt(value)),
  fc.nat(0x3ff).map((value) => (0x2000n << 112n) + BigInt(value)),
);
const range = fc
  .tuple(address, fc.nat(9))
  .map(([at, hostBits]) => buildIpRange(at, (isIpv4(at) ? 32 : 128) - hostBits));

test('the table finds an address if and only if a range holds it, and then the widest', () => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 30 }), address, (ranges, at) => {
      const holding = ranges.filter(({ first, last }) => first <= at && at <= last);
      const widest = Math.min(...holding.map(({ prefix }) => prefix));
      assert.equal(findRange(buildRangeTable(ranges), at)?.prefix, holding.length > 0 ? widest : undefined);
    }),
    { numRuns: 1000 },
  );
});

test('the table covers a range if and only if one of its ranges holds all of it', () => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 20 }), range, (ranges, inner) => {
      const isCovered = ranges.some((outer) => containsRange(outer, inner));
      assert.equal(findCovering(buildRangeTable(ranges), inner) !== undefined, isCovered);
    }),
  );
});

test('a range of all IPv6 addresses holds no IPv4 address, and the other way round', () => {
  const all6 = buildRangeTable([parseIpRange('x', '::/0')]);
  const all4 = buildRangeTable([parseIpRange('x', '0.0.0.0/0')]);
  for (const text of ['0.0.0.0', '203.0.113.7', '255.255.255.255', '::ffff:203.0.113.7']) {
    assert.equal(findRange(all6, parseIpAddress(text) ?? -1n), undefined);
    assert.ok(findRange(all4, parseIpAddress(text) ?? -1n));
  }
  for (const text of ['::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff']) {
    assert.equal(findRange(all4, parseIpAddress(text) ?? -1n), undefined);
    assert.ok(findRange(all6, parseIpAddress(text) ?? -1n));
  }
});

test('a range that is none is refused with the setting that it stands in', () => {
  for (const text of [
    '',
    '10.0.0.0/33',
    '10.0.0.1/8',
    '10.0.0.0/8/8',
    '10.0.0.0/-1',
    '10.0.0.0/08',
    '10.0.0.0/',
    'a/8',
  ])
    assert.throws(() => parseIpRange('openPrivateRanges', text), /^TypeError: openPrivateRanges: "/u, text);
});

test('a range that was read is the one that is built from its address', () => {
  fc.assert(fc.property(range, (built) => assert.deepEqual(parseIpRange('x', built.text), built)));
});
