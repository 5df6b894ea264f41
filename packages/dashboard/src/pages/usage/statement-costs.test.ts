import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StatementLine } from '../../../../sdk/src/index.ts';
import {
  costsByDay,
  costsByLabel,
  joinLines,
  labelNames,
  sortLines,
  sumUnits,
  type Life,
} from './statement-costs.ts';
import { sumCosts } from './sum-costs.ts';

const PERIOD = {
  from: '2026-11-01T00:00:00.000Z',
  to: '2026-12-01T00:00:00.000Z',
  asOf: '2026-11-20T12:00:00.000Z',
};
const HOUR_MS = 3_600_000;

function line(sandboxId: string, billedMs: number): StatementLine {
  return { sandboxId, teamId: 'team1', image: 'image:1', vcpus: 1, memMiB: 1024, billedMs, costCents: 0 };
}

function life(
  id: string,
  createdAt: string,
  endedAt: string | null,
  labels: Record<string, string> = {},
): Life {
  return { id, name: null, createdAt, endedAt, labels };
}

const daysOf = (lines: readonly StatementLine[], lives: readonly Life[]) => {
  const joined = joinLines(lines, lives);
  const { days, unplacedUnits } = costsByDay(joined, PERIOD);
  const costs = days.filter(({ units }) => units > 0n).map(({ day, units }) => [day, units]);
  const sum = days.reduce((all, { units }) => all + units, unplacedUnits);
  assert.equal(sum, sumUnits(joined), 'the days add up to the lines');
  return { costs, unplacedUnits, count: days.length };
};
/** One vCPU with 1 GiB. */
const unitsOf = (ms: number): bigint => BigInt(ms) * (5120n + 3n * 1024n);

test('a sandbox within a day costs on that day, and the month has all its days', () => {
  const { costs, count } = daysOf(
    [line('a', HOUR_MS)],
    [life('a', '2026-11-03T10:00:00.000Z', '2026-11-03T11:00:00.000Z')],
  );
  assert.deepEqual(costs, [['2026-11-03', unitsOf(HOUR_MS)]]);
  assert.equal(count, 30);
});

test('a sandbox over midnight in UTC is split there', () => {
  const { costs } = daysOf(
    [line('a', 3 * HOUR_MS)],
    [life('a', '2026-11-03T22:00:00.000Z', '2026-11-04T01:00:00.000Z')],
  );
  assert.deepEqual(costs, [
    ['2026-11-03', unitsOf(2 * HOUR_MS)],
    ['2026-11-04', unitsOf(HOUR_MS)],
  ]);
});

test('a sandbox that ends at midnight has nothing on the next day', () => {
  const { costs } = daysOf(
    [line('a', HOUR_MS)],
    [life('a', '2026-11-03T23:00:00.000Z', '2026-11-04T00:00:00.000Z')],
  );
  assert.deepEqual(costs, [['2026-11-03', unitsOf(HOUR_MS)]]);
});

test('a life is cut to the month, and one that has not ended to the time of the statement', () => {
  const { costs } = daysOf(
    [line('a', 2 * HOUR_MS), line('b', 12 * HOUR_MS)],
    [
      life('a', '2026-10-20T00:00:00.000Z', '2026-11-01T02:00:00.000Z'),
      life('b', '2026-11-20T00:00:00.000Z', null),
    ],
  );
  assert.deepEqual(costs, [
    ['2026-11-01', unitsOf(2 * HOUR_MS)],
    ['2026-11-20', unitsOf(12 * HOUR_MS)],
  ]);
});

test('no millisecond is lost when the billed time does not divide by the days', () => {
  const { costs } = daysOf(
    [line('a', 1_000_001)],
    [life('a', '2026-11-03T00:00:00.000Z', '2026-11-06T00:00:00.000Z')],
  );
  assert.deepEqual(
    costs.map(([, units]) => units),
    [unitsOf(333_333), unitsOf(333_334), unitsOf(333_334)],
  );
});

test('a sandbox of no length is on the day of its create', () => {
  const time = '2026-11-05T00:00:00.000Z';
  assert.deepEqual(daysOf([line('a', 1)], [life('a', time, time)]).costs, [['2026-11-05', unitsOf(1)]]);
});

test('the cost of a sandbox with unknown times is in no day, and in a group of its own', () => {
  assert.equal(daysOf([line('a', 5)], []).unplacedUnits, unitsOf(5));
  const lines = joinLines([line('a', 5)], []);
  assert.deepEqual(costsByLabel(lines, 'job'), [
    { value: undefined, units: unitsOf(5), sandboxes: 1, billedMs: 5 },
  ]);
});

test('costs by label are summed exactly, the highest first, with those without it', () => {
  const time = '2026-11-05T00:00:00.000Z';
  const lines = joinLines(
    [line('a', 1), line('b', 3), line('c', 2), line('d', 9)],
    [
      life('a', time, time, { job: 'x' }),
      life('b', time, time, { job: 'y' }),
      life('c', time, time, { job: 'x' }),
      life('d', time, time, { toString: 'z' }),
    ],
  );
  assert.deepEqual(costsByLabel(lines, 'job'), [
    { value: null, units: unitsOf(9), sandboxes: 1, billedMs: 9 },
    { value: 'x', units: unitsOf(3), sandboxes: 2, billedMs: 3 },
    { value: 'y', units: unitsOf(3), sandboxes: 1, billedMs: 3 },
  ]);
  assert.deepEqual(labelNames(lines), ['job', 'toString']);
  assert.equal(costsByLabel(lines, 'toString')[0]?.value, 'z');
});

test('lines are ordered by cost, time or id', () => {
  const lines = joinLines([line('a', 1), { ...line('b', 1), vcpus: 4 }, line('c', 2)], []);
  const ids = (order: 'cost' | 'billed' | 'id'): string =>
    sortLines(lines, order)
      .map(({ sandboxId }) => sandboxId)
      .join('');
  assert.deepEqual([ids('cost'), ids('billed'), ids('id')], ['bca', 'cab', 'abc']);
});

test('a sum of many small costs is rounded once', () => {
  const entries = Array.from({ length: 3 }, () => ({ vcpus: 1, memMiB: 0, billedMs: 480_000 }));
  assert.equal(sumCosts(entries), 1);
});
