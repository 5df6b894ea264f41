import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatRows, summarize } from './report-table.mjs';

/** @type {import('./doctor.mjs').Row[]} */
const ROWS = [
  { name: 'disk', status: 'ok', detail: '9 GiB free' },
  { name: 'network', status: 'fail', detail: 'dropped', remedy: 'nft insert rule' },
  { name: 'tsc', status: 'warn', detail: 'unsteady' },
];

test('a row is one line, and its remedy is a second line below the detail', () => {
  assert.equal(
    formatRows(ROWS, { colour: false }),
    'ok    disk     9 GiB free\nfail  network  dropped\n               -> nft insert rule\nwarn  tsc      unsteady\n',
  );
});

test('only the status has a colour', () => {
  const [line] = formatRows(ROWS.slice(0, 1), { colour: true }).split('\n');
  assert.equal(line, '\u001B[32mok  \u001B[0m  disk  9 GiB free');
});

test('the last lines name what to review and what to fix, or say ready', () => {
  assert.equal(summarize(ROWS), '\n1 to review: tsc\n1 to fix: network\n');
  assert.equal(summarize(ROWS.slice(0, 1)), '\nready\n');
});
