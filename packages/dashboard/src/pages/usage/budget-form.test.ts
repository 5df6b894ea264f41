import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeDollars } from '../../ui/dollars.ts';
import { readBudget } from './budget-form.ts';

test('amounts and percentages are read as people write them', () => {
  const read = (dollars: string, percents = '100') => readBudget({ dollars, percents }).options;
  assert.deepEqual(read('250'), { monthCents: 25_000, alertPercents: [100] });
  assert.equal(read(' 99.50 ')?.monthCents, 9950);
  assert.equal(read('0,29')?.monthCents, 29);
  assert.deepEqual(read('1', '80 %, 50;100, 50')?.alertPercents, [50, 80, 100]);
});

test('a wrong field says how to write it; an empty one says nothing', () => {
  assert.deepEqual(readBudget({ dollars: '', percents: '' }), { options: undefined, faults: {} });
  for (const dollars of ['0', '-1', '1e3', '1.234', 'ten', '1 000', '9'.repeat(10), '1000000000.01'])
    assert.match(readBudget({ dollars, percents: '50' }).faults.dollars ?? '', /such as 250/u, dollars);
  for (const percents of ['0', '1001', '1.5', 'half', '1 2 3 4 5 6 7 8 9 10 11', ','])
    assert.match(readBudget({ dollars: '1', percents }).faults.percents ?? '', /such as 50/u, percents);
});

test('an amount is shown as it can be typed', () => {
  for (const cents of [1, 29, 9950, 25_000, 100_000_000_000]) {
    const read = readBudget({ dollars: writeDollars(cents), percents: '50' });
    assert.equal(read.options?.monthCents, cents);
  }
});
