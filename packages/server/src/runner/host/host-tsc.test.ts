import assert from 'node:assert/strict';
import { test } from 'node:test';
import { measureTscKhz } from './host-tsc.ts';
import { HOSTCTL } from '../../config/testing/hostctl.ts';

test('two measurements of the TSC agree and are plausible', async () => {
  const [first, second] = [await measureTscKhz(HOSTCTL), await measureTscKhz(HOSTCTL)];
  assert.ok(first > 200_000 && first < 10_000_000, `${first} kHz`);
  assert.ok(Math.abs(first - second) / first < 0.001, `${first} and ${second} kHz`);
});

test('a program that prints no rate is an error', async () => {
  await assert.rejects(measureTscKhz('/bin/true'), { name: 'ZodError' });
  await assert.rejects(measureTscKhz('/bin/false'), /exit code 1/u);
});
