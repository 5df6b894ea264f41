import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { buildClientAddress, parseAddressRange } from './client-address.ts';

const PROXY = '10.0.0.1';
const find = buildClientAddress(['10.0.0.0/8', '192.0.2.7', '2001:db8:1::/48']);

test('only entries that trusted proxies wrote count', () => {
  const cases: [connectedFrom: string, forwardedFor: string | undefined, client: string][] = [
    ['203.0.113.5', undefined, '203.0.113.5'],
    ['203.0.113.5', '198.51.100.9', '203.0.113.5'],
    [PROXY, undefined, PROXY],
    [PROXY, '198.51.100.9', '198.51.100.9'],
    [PROXY, '1.1.1.1, 198.51.100.9', '198.51.100.9'],
    [PROXY, '198.51.100.9, 10.9.9.9', '198.51.100.9'],
    [PROXY, '198.51.100.9,192.0.2.7 , 10.9.9.9', '198.51.100.9'],
    [PROXY, '198.51.100.9, 192.0.2.8', '192.0.2.8'],
    [PROXY, '10.1.1.1, 10.2.2.2', '10.1.1.1'],
    ['2001:db8:1::5', '2001:db8:2::9', '2001:db8:2::9'],
    ['2001:db8:2::5', '198.51.100.9', '2001:db8:2::5'],
    ['::ffff:10.0.0.1', '198.51.100.9', '198.51.100.9'],
    ['::ffff:203.0.113.5', '198.51.100.9', '203.0.113.5'],
    [PROXY, '198.51.100.9:4711', '198.51.100.9'],
    [PROXY, '[2001:db8:2::9]:4711', '2001:db8:2::9'],
    [PROXY, '::ffff:198.51.100.9', '198.51.100.9'],
  ];
  for (const [connectedFrom, forwardedFor, client] of cases)
    assert.equal(find(connectedFrom, forwardedFor), client, `${connectedFrom} ${forwardedFor}`);
});

test('text that is not an address is never returned', () => {
  for (const entry of [
    '',
    'unknown',
    '_hidden',
    '1.2.3',
    '<script>',
    '1.2.3.4\r\nX: y',
    'fe80::1%eth0',
    '[::1',
  ])
    assert.equal(find(PROXY, `198.51.100.9, ${entry}`), PROXY, entry);
});

test('without trusted proxies the header is ignored', () => {
  const findPlain = buildClientAddress([]);
  fc.assert(
    fc.property(fc.string(), (header) => {
      assert.equal(findPlain('203.0.113.5', header), '203.0.113.5');
    }),
  );
});

test('text that a client writes in front changes nothing', () => {
  fc.assert(
    fc.property(fc.string(), (forged) => {
      assert.equal(find(PROXY, `${forged}, 198.51.100.9`), '198.51.100.9');
    }),
  );
});

test('addresses and ranges are parsed, and other text is refused', () => {
  assert.deepEqual(parseAddressRange('10.0.0.0/8'), { address: '10.0.0.0', prefix: 8 });
  assert.deepEqual(parseAddressRange('2001:db8::1'), { address: '2001:db8::1', prefix: 128 });
  assert.deepEqual(parseAddressRange('0.0.0.0/0'), { address: '0.0.0.0', prefix: 0 });
  for (const text of [
    '',
    'proxy.example',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '10.0.0.0/-1',
    '::/129',
  ])
    assert.equal(parseAddressRange(text), undefined, text);
});
