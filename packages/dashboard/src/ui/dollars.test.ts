import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isBegun, parseCents } from './dollars.ts';

test('amounts in USD are whole cents', () => {
  assert.deepEqual(
    ['25', ' 2.5 ', '0.01', '19.99', '1000000000'].map(parseCents),
    [2500, 250, 1, 1999, 100_000_000_000],
  );
});

test('nothing, less than a cent, and what is no amount are refused', () => {
  for (const text of ['', '0', '0.00', '0.001', '-5', '1e3', '1,5', '$5', '9'.repeat(20)])
    assert.equal(parseCents(text), undefined, text);
});

test('an amount that is being typed is no fault yet', () => {
  for (const text of ['', ' ', '0', '0.', '0.0', '0.00', '2.']) assert.equal(isBegun(text), true, text);
  for (const text of ['-', '1e', '.5', '0.001', '$', '1,']) assert.equal(isBegun(text), false, text);
});
