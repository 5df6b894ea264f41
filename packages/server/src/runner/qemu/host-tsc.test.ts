import assert from 'node:assert/strict';
import { test } from 'node:test';
import { measureTscKhz } from './host-tsc.ts';

test('two measurements of the TSC agree and are plausible', async () => {
  const [first, second] = [await measureTscKhz(), await measureTscKhz()];
  assert.ok(first > 200_000 && first < 10_000_000, `${first} kHz`);
  assert.ok(Math.abs(first - second) / first < 0.001, `${first} and ${second} kHz`);
});
