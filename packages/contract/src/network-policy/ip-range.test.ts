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

/** Few addresses, in both families, so that ranges overlap. */
const address = fc.oneof(
  fc.nat(0x3ff).map((value) => MAX_IP - BigInt(value)),
  fc.nat(0x3ff).map((value) => (0x2000n << 112n) + BigInt(value)),
);
const range = fc
  .tuple(address, fc.nat(9))
  .map(([at, hostBits]) => buildIpRange(at, (isIpv4(at) ? 32 : 128) - hostBits));

test('the table finds a range if and only if one contains the address, and returns the widest', () => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 30 }), address, (ranges, at) => {
      const holding = ranges.filter(({ first, last }) => first <= at && at <= last);
      const widest = Math.min(...holding.map(({ prefix }) => prefix));
      assert.equal(findRange(buildRangeTable(ranges), at)?.prefix, holding.length > 0 ? widest : undefined);
    }),
    { numRuns: 1000 },
  );
});

test('the table covers a range if and only if one of its ranges contains all of it', () => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 20 }), range, (ranges, inner) => {
      const isCovered = ranges.some((outer) => containsRange(outer, inner));
      assert.equal(findCovering(buildRangeTable(ranges), inner) !== undefined, isCovered);
    }),
  );
});

test('a range of all IPv6 addresses contains no IPv4 address, and vice versa', () => {
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

test('an invalid range is refused, and the error names its setting', () => {
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

test('a parsed range equals the one built from its address', () => {
  fc.assert(fc.property(range, (built) => assert.deepEqual(parseIpRange('x', built.text), built)));
});
