import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toAddressBlock } from './address-block.ts';

test('an IPv4 address stands for itself', () => {
  assert.equal(toAddressBlock('192.0.2.1'), '192.0.2.1');
});

test('all addresses of an IPv6 network are one block, however they are written', () => {
  for (const address of ['2001:db8:1:2::1', '2001:0DB8:0001:0002:ffff:ffff:ffff:ffff', '2001:db8:1:2:3::'])
    assert.equal(toAddressBlock(address), '2001:db8:1:2::/64');
  assert.notEqual(toAddressBlock('2001:db8:1:3::1'), '2001:db8:1:2::/64');
  assert.equal(toAddressBlock('::1'), '0:0:0:0::/64');
});
