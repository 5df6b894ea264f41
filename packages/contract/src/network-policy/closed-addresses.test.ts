import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { findClosedReason } from './closed-addresses.ts';
import { formatIpAddress, parseIpAddress } from './ip-address.ts';
import { buildIpRange } from './ip-range.ts';
import { judge } from './judge.ts';
import { CLOSED, compile } from './testing/policies.ts';
import { someRules } from './testing/policy-model.ts';

function reasonOf(text: string): string | undefined {
  return findClosedReason(CLOSED, parseIpAddress(text) ?? -1n);
}

test('every address at which a guest would reach the host or its network is closed', () => {
  const reserved4 =
    '0.0.0.0 0.1.2.3 127.0.0.1 127.255.255.255 169.254.169.254 224.0.0.251 240.0.0.1 255.255.255.255 ::ffff:127.0.0.1';
  const reserved6 =
    ':: ::1 ::7f00:1 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 fe80::1 fec0::1 ff02::1 2002:7f00:1:: 2001:0:1:: 4000::1 f000::1';
  const reserved = `${reserved4} ${reserved6}`.split(' ');
  for (const text of reserved) assert.equal(reasonOf(text), 'reserved_address', text);
  for (const text of [
    '10.0.0.1',
    '10.2.0.0',
    '100.64.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '198.19.0.1',
    'fd00::1',
  ])
    assert.equal(reasonOf(text), 'private_address', text);
  for (const text of ['10.202.0.2', '198.51.100.1', '2001:db8::1', '::ffff:198.51.100.1'])
    assert.equal(reasonOf(text), 'host_address', text);
});

test('public addresses and private ones that the operator opened are open', () => {
  for (const text of [
    '10.1.0.0',
    '10.1.255.255',
    '1.1.1.1',
    '172.32.0.1',
    '203.0.113.7',
    '2a00::1',
    '2001:db8::2',
    '3fff::',
  ])
    assert.equal(reasonOf(text), undefined, text);
});

test('every IPv6 address outside 2000::/3 is closed', () => {
  const address = fc.bigInt({ min: 0n, max: (1n << 128n) - 1n });
  fc.assert(
    fc.property(address, (value) => {
      const text = formatIpAddress(value);
      const isMapped = value >> 32n === 0xffffn;
      const isGlobal = buildIpRange(value, 3).text === '2000::/3';
      if (!isMapped && !isGlobal) assert.notEqual(reasonOf(text), undefined, text);
    }),
    { numRuns: 2000 },
  );
});

test('no policy and no name opens a closed address', () => {
  const closed = fc.constantFrom(
    '127.0.0.1',
    '0.0.0.0',
    '169.254.169.254',
    '192.168.1.1',
    '::1',
    '::ffff:10.0.0.1',
    '198.51.100.1',
  );
  const name = fc.constantFrom(undefined, 'a', 'a.b', 'c');
  fc.assert(
    fc.property(someRules, closed, name, (rules, address, shown) => {
      const wide = { ...rules, allow: [...rules.allow, '128.0.0.0/1', '0.0.0.0/1', '::/1'] };
      for (const each of [rules, wide]) {
        const verdict = judge(compile(each), { address, name: shown });
        assert.equal(verdict.action === 'deny' && verdict.reason.endsWith('_address'), true);
      }
    }),
  );
});
