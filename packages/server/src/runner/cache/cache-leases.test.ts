import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CacheLeases } from './cache-leases.ts';

test('a thing is held until the last of its leases is released', () => {
  const leases = new CacheLeases();
  const idle: string[] = [];
  leases.whenIdle((key) => idle.push(key));
  const first = leases.open();
  const second = leases.open();
  first.add('a');
  first.add('a');
  second.add('a');
  second.add('b');
  first.release();
  first.release();
  assert.deepEqual([leases.isHeld('a'), leases.isHeld('b'), idle], [true, true, []]);
  second.release();
  assert.deepEqual([leases.isHeld('a'), leases.isHeld('b'), idle], [false, false, ['a', 'b']]);
});

test('a released lease holds nothing', () => {
  const leases = new CacheLeases();
  const lease = leases.open();
  lease.release();
  lease.add('a');
  assert.equal(leases.isHeld('a'), false);
});
