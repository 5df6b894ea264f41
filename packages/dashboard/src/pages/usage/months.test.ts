import assert from 'node:assert/strict';
import { test } from 'node:test';
import { monthOf, monthsBack, monthsBetween, nextMonth, previousMonth } from './months.ts';

test('months are those of UTC, whatever the time zone of the reader', () => {
  assert.equal(monthOf('2026-11-30T23:59:59.999Z'), '2026-11');
  assert.equal(monthOf('2026-12-01T00:30:00+01:00'), '2026-11');
});

test('months continue over the end of a year', () => {
  assert.equal(nextMonth('2026-12'), '2027-01');
  assert.equal(previousMonth('2026-01'), '2025-12');
  assert.deepEqual(monthsBack('2026-02', 3), ['2026-02', '2026-01', '2025-12']);
});

test('the months between two times are listed, both included', () => {
  assert.deepEqual(monthsBetween('2026-11-30T23:00:00Z', '2027-01-01T00:00:00Z'), [
    '2026-11',
    '2026-12',
    '2027-01',
  ]);
  assert.deepEqual(monthsBetween('2026-11-02T00:00:00Z', '2026-11-03T00:00:00Z'), ['2026-11']);
});
