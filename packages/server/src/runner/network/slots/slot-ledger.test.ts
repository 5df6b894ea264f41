import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { SlotLedger } from './slot-ledger.ts';

const CAPACITY = 4;
const QUARANTINE_MS = 3000;

function makeLedger(found: number[] = []): SlotLedger {
  return new SlotLedger({ capacity: CAPACITY, quarantineMs: QUARANTINE_MS, found });
}

test('a slot is leased, released and, after its quarantine, free again', () => {
  const ledger = makeLedger();
  assert.deepEqual(ledger.reserve(1, 0), [0]);
  assert.equal(ledger.lease('vm'), undefined);
  ledger.prepared(0);
  assert.equal(ledger.lease('vm'), 0);
  assert.equal(ledger.release('vm'), 0);
  assert.equal(ledger.release('vm'), undefined);
  ledger.removed(0, 1000);
  assert.equal(ledger.nextFreeAtMs(), 4000);
  assert.deepEqual(ledger.reserve(9, 3999), [1, 2, 3]);
  assert.deepEqual(ledger.reserve(9, 4000), [0]);
});

test('only a found slot can be adopted, by one VM, and adopting it again is no error', () => {
  const ledger = makeLedger([2]);
  assert.equal(ledger.adopt('vm', 1), false);
  assert.equal(ledger.adopt('vm', 2), true);
  assert.equal(ledger.adopt('vm', 2), true);
  assert.equal(ledger.adopt('other', 2), false);
  assert.deepEqual(ledger.list('found'), []);
});

test('a found slot is never given to a new VM', () => {
  const ledger = makeLedger([0, 1]);
  assert.deepEqual(ledger.reserve(9, 0), [2, 3]);
  ledger.discard([0, 1]);
  assert.deepEqual(ledger.list('removing'), [0, 1]);
});

test('steps out of order throw', () => {
  const ledger = makeLedger();
  assert.throws(() => ledger.prepared(0), /slot 0 is free/u);
  assert.throws(() => ledger.removed(0, 0), /slot 0 is free/u);
  ledger.prepared(ledger.reserve(1, 0)[0]!);
  ledger.lease('vm');
  assert.throws(() => ledger.discard([0]), /slot 0 is leased/u);
  assert.throws(() => ledger.lease('vm'), /has a network slot already/u);
});

test('in any sequence of steps no slot has two VMs and none is used within its quarantine', () => {
  const step = fc.record({
    kind: fc.constantFrom('prepare', 'lease', 'release', 'remove', 'discard'),
    vm: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    elapsedMs: fc.integer({ min: 0, max: 2000 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const ledger = makeLedger([1]);
      const owners = new Map<number, string>();
      const removedAtMs = new Map<number, number>();
      let nowMs = 0;
      for (const { kind, vm, elapsedMs } of steps) {
        nowMs += elapsedMs;
        if (kind === 'prepare') {
          for (const index of ledger.reserve(2, nowMs)) {
            assert.ok(nowMs - (removedAtMs.get(index) ?? -QUARANTINE_MS) >= QUARANTINE_MS);
            ledger.prepared(index);
          }
        } else if (kind === 'lease' && ledger.findByVm(vm) === undefined) {
          const index = ledger.lease(vm);
          if (index !== undefined) {
            assert.ok(!owners.has(index));
            owners.set(index, vm);
          }
        } else if (kind === 'release') {
          const index = ledger.release(vm);
          if (index !== undefined) assert.equal(owners.get(index), vm);
          owners.delete(index ?? -1);
        } else if (kind === 'discard') ledger.discard(ledger.list('found'));
        else {
          for (const index of ledger.list('removing')) {
            ledger.removed(index, nowMs);
            removedAtMs.set(index, nowMs);
          }
        }
      }
    }),
  );
});
