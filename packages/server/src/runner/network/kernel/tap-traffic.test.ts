import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseTraffic } from './tap-traffic.ts';

const DEVICES = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  107000     100    0    0    0     0          0         0   107000     100    0    0    0     0       0          0
cop7e57-1:123456789012      20    0    3    0     0          0         0 987654321098      30    0    4    0     0       0          0
cop7e57-11:       5       1    0    0    0     0          0         0        6       1    0    0    0     0       0          0
`;

test('the line of a TAP is found by its whole name, and its counts are read from the guest’s side', () => {
  const traffic = parseTraffic(DEVICES);
  assert.deepEqual([...traffic.keys()], ['lo', 'cop7e57-1', 'cop7e57-11']);
  assert.deepEqual(traffic.get('cop7e57-1'), {
    fromGuestBytes: 123_456_789_012,
    toGuestBytes: 987_654_321_098,
    fromGuestPackets: 20,
    toGuestPackets: 30,
  });
});

test('a missing TAP or a truncated line has no counts', () => {
  assert.equal(parseTraffic(DEVICES).get('cop7e57-2'), undefined);
  for (const text of ['cop7e57-1: 5 6', '', ':', 'cop7e57-1']) assert.equal(parseTraffic(text).size, 0, text);
});
