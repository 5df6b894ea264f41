import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatIpAddress, isIpv4, parseIpAddress, parseIpv6 } from './ip-address.ts';

const groups = fc.array(fc.nat(0xffff), { minLength: 8, maxLength: 8 });

test('an IPv4 address is four decimal numbers and nothing else', () => {
  for (const text of ['0.0.0.0', '203.0.113.7', '255.255.255.255'])
    assert.equal(formatIpAddress(parseIpAddress(text) ?? -1n), text);
  const numbers = '0177.0.0.1 0x7f.0.0.1 127.1 2130706433 017700000001 1.2.3.256 1.2.3 1.2.3.4.5 1.2.3.00';
  const others = [
    '1.2.3.',
    '.1.2.3',
    ' 1.2.3.4',
    '1.2.3.4\n',
    '1.2.3.4%0',
    '١.٢.٣.٤',
    '+1.2.3.4',
    '1e1.2.3.4',
    '',
  ];
  const none = [...numbers.split(' '), ...others];
  for (const text of none) assert.equal(parseIpAddress(text), undefined, text);
});

test('every IPv4 address survives parsing and formatting, and sorts by its value', () => {
  fc.assert(
    fc.property(fc.ipV4(), fc.ipV4(), (a, b) => {
      const [first, second] = [parseIpAddress(a) ?? -1n, parseIpAddress(b) ?? -1n];
      assert.equal(formatIpAddress(first), a);
      assert.ok(isIpv4(first));
      const value = (text: string): number =>
        text.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
      assert.equal(first < second, value(a) < value(b));
    }),
  );
});

test('every IPv6 address has the value of its groups, below every IPv4 address', () => {
  fc.assert(
    fc.property(groups, (parts) => {
      const value = parts.reduce((sum, part) => (sum << 16n) | BigInt(part), 0n);
      const text = parts.map((part) => part.toString(16)).join(':');
      assert.equal(parseIpv6(text), value);
      assert.equal(parseIpv6(formatIpAddress(value)), value);
      assert.ok(!isIpv4(value));
    }),
  );
});

test('any spelling of an IPv6 address parses, and text that only looks like one does not', () => {
  fc.assert(fc.property(fc.ipV6(), (text) => parseIpv6(text) !== undefined));
  assert.equal(parseIpv6('::'), 0n);
  assert.equal(parseIpv6('::1'), 1n);
  assert.equal(formatIpAddress(parseIpv6('2001:DB8:0:0::01') ?? -1n), '2001:db8::1');
  const none = [
    '1::2::3',
    ':::',
    ':',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    'fe80::1%eth0',
    '[::1]',
    '::g',
    '::1]/@a',
  ];
  for (const text of [...none, '::1/64', '12345::', `${'0'.repeat(60)}::1`])
    assert.equal(parseIpv6(text), undefined, text);
});

test('an IPv4-mapped IPv6 address parses as the IPv4 address that it reaches', () => {
  for (const text of ['::ffff:203.0.113.7', '::ffff:cb00:7107', '0:0:0:0:0:FFFF:203.0.113.7'])
    assert.equal(formatIpAddress(parseIpAddress(text) ?? -1n), '203.0.113.7');
  assert.equal(formatIpAddress(parseIpAddress('::fffe:203.0.113.7') ?? -1n), '::fffe:cb00:7107');
});

test('no text makes the parser throw, and each accepted address has one spelling', () => {
  const hostile = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string({ unit: fc.constantFrom('0', '1', '9', 'a', 'f', ':', '.', '%', '[', ']', '/', '@', 'x') }),
  );
  fc.assert(
    fc.property(hostile, (text) => {
      const address = parseIpAddress(text);
      if (address !== undefined) assert.equal(parseIpAddress(formatIpAddress(address)), address);
    }),
    { numRuns: 2000 },
  );
});
