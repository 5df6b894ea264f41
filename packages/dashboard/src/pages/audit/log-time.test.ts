import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatLogTime } from './log-time.ts';

const NOW = new Date(2026, 10, 27);
const local = (year: number): string => new Date(year, 10, 7, 9, 5, 3).toISOString();

test('times have seconds, and a year only if it is another', () => {
  assert.match(formatLogTime(local(2026), NOW), /7.*9:05:03/u);
  assert.doesNotMatch(formatLogTime(local(2026), NOW), /2026/u);
  assert.match(formatLogTime(local(2025), NOW), /2025.*9:05:03/u);
});

test('a text that is no time is shown as it is', () => {
  assert.equal(formatLogTime('soon', NOW), 'soon');
});
