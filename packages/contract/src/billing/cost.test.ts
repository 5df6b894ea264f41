import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { COST_UNITS_PER_CENT, computeCostUnits, costCents, gbHours } from './cost.ts';

const shape = fc.record({
  vcpus: fc.integer({ min: 1, max: 32 }),
  memMiB: fc.integer({ min: 128, max: 262_144 }),
  billedMs: fc.integer({ min: 0, max: 10 * 365 * 86_400_000 }),
});

test('an hour of 1 vCPU and 1 GiB costs exactly 4 cents', () => {
  const units = computeCostUnits({ vcpus: 1, memMiB: 1024, billedMs: 3_600_000 });
  assert.equal(units, 4n * COST_UNITS_PER_CENT);
  assert.equal(costCents(units), 4);
});

test('one second of 1 vCPU and 1 GiB costs 4/3600 of a cent', () => {
  assert.equal(costCents(computeCostUnits({ vcpus: 1, memMiB: 1024, billedMs: 1000 })), 0.001111111111);
});

test('the cost of a time is the sum of the costs of its parts, for any split', () => {
  fc.assert(
    fc.property(shape, fc.integer({ min: 0, max: 1_000_000 }), (whole, cut) => {
      const first = Math.min(cut, whole.billedMs);
      const parts =
        computeCostUnits({ ...whole, billedMs: first }) +
        computeCostUnits({ ...whole, billedMs: whole.billedMs - first });
      assert.equal(parts, computeCostUnits(whole));
    }),
  );
});

test('the shown cents follow the formula of the specification', () => {
  fc.assert(
    fc.property(shape, ({ vcpus, memMiB, billedMs }) => {
      const expected = (((0.025 * vcpus + 0.015 * (memMiB / 1024)) * 100) / 3600) * (billedMs / 1000);
      const shown = costCents(computeCostUnits({ vcpus, memMiB, billedMs }));
      assert.ok(Math.abs(shown - expected) <= 1e-11 + expected * 1e-12, `${shown} is not ${expected}`);
    }),
  );
});

test('a GB of disk for a month of 730 hours costs exactly 2 cents', () => {
  const byteMs = 2n ** 30n * 730n * 3_600_000n;
  assert.equal(costCents(0n, byteMs), 2);
  assert.equal(costCents(4n * COST_UNITS_PER_CENT, byteMs / 2n), 5);
  assert.equal(gbHours(byteMs), 730);
});

test('a negative or fractional time throws, because it is a bug', () => {
  assert.throws(() => computeCostUnits({ vcpus: 1, memMiB: 1024, billedMs: -1 }), RangeError);
  assert.throws(() => computeCostUnits({ vcpus: 1, memMiB: 1024, billedMs: 0.5 }), RangeError);
});
