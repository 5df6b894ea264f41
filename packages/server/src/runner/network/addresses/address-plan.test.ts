import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  buildAddressPlan,
  buildSlotAddresses,
  formatIpv4,
  parseCidr,
  parseIpv4,
  parseOpenRanges,
} from './address-plan.ts';

test('the first /30 holds the resolver, and slot n owns the (n+1)th /30', () => {
  const plan = buildAddressPlan('10.202.0.0/16');
  assert.equal(plan.resolver, '10.202.0.1');
  assert.equal(plan.capacity, 16_383);
  assert.deepEqual(buildSlotAddresses(plan, 0), {
    index: 0,
    gateway: '10.202.0.5',
    guest: '10.202.0.6',
    prefix: 30,
    zone: 1,
  });
  assert.equal(buildSlotAddresses(plan, 16_382).guest, '10.202.255.254');
  assert.throws(() => buildSlotAddresses(plan, 16_383), RangeError);
  assert.throws(() => buildSlotAddresses(plan, -1), RangeError);
});

test('no two slots share an address, all lie in the range, and zones fit in 16 bits', () => {
  const plans = ['10.0.0.0/8', '172.16.0.0/12', '192.168.4.0/22', '10.202.0.0/28'].map(buildAddressPlan);
  const anyPair = fc.constantFrom(...plans).chain((plan) => {
    const index = fc.integer({ min: 0, max: plan.capacity - 1 });
    return fc.tuple(fc.constant(plan), index, index);
  });
  fc.assert(
    fc.property(anyPair, ([plan, a, b]) => {
      const [one, other] = [buildSlotAddresses(plan, a), buildSlotAddresses(plan, b)];
      const all = [plan.resolver, one.gateway, one.guest];
      assert.equal(new Set(all).size, 3);
      assert.ok(
        all.every(
          (address) => parseIpv4(address) >= plan.guests.first && parseIpv4(address) <= plan.guests.last,
        ),
      );
      assert.equal(one.guest === other.guest, a === b);
      assert.ok(one.zone >= 1 && one.zone <= 65_535);
    }),
  );
});

test('addresses survive formatting and parsing', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 32 - 1 }), (value) => {
      assert.equal(parseIpv4(formatIpv4(value)), value);
    }),
  );
});

test('the error for a range that cannot carry guests names the remedy', () => {
  const refused: [string, RegExp][] = [
    ['10.202.0.1/16', /host bits set; write 10\.202\.0\.0\/16/u],
    ['10.202.0.0', /not an IPv4 range/u],
    ['10.202.0.0/33', /not an IPv4 range/u],
    ['10.202.0.0/16/16', /not an IPv4 range/u],
    ['10.202.0/16', /not an IPv4 range/u],
    ['012.0.0.0/8', /not an IPv4 range/u],
    ['fd00::/8', /not an IPv4 range/u],
    ['10.202.0.0/29', /prefix of \/8 to \/28/u],
    ['203.0.113.0/24', /not private/u],
    ['8.0.0.0/8', /not private/u],
  ];
  for (const [text, message] of refused) {
    assert.throws(() => buildAddressPlan(text), { code: 'invalid_request', message });
  }
});

test('an operator can open only parts of private ranges, and overlapping ones are merged', () => {
  assert.throws(() => parseOpenRanges(['169.254.0.0/16']), {
    code: 'invalid_request',
    message: /openPrivateRanges/u,
  });
  assert.throws(() => parseOpenRanges(['0.0.0.0/0']), { code: 'invalid_request' });
  const texts = parseOpenRanges(['10.1.0.0/16', '10.0.0.0/8', '192.168.1.0/24', '192.168.1.0/24']).map(
    ({ text }) => text,
  );
  assert.deepEqual(texts, ['10.0.0.0/8', '192.168.1.0/24']);
});

test('a CIDR is parsed to its first and last address', () => {
  assert.deepEqual(parseCidr('x', '0.0.0.0/0'), {
    text: '0.0.0.0/0',
    first: 0,
    last: 2 ** 32 - 1,
    prefix: 0,
  });
  assert.equal(parseCidr('x', '255.255.255.255/32').last, 2 ** 32 - 1);
});
