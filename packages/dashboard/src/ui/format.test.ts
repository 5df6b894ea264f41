import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatAge, formatBytes, formatCents, formatDuration, formatImage, formatMiB } from './format.ts';

test('sizes have three digits and a unit', () => {
  assert.deepEqual([0, 1023, 1024, 1_500_000, 2 ** 40].map(formatBytes), [
    '0 B',
    '1,023 B',
    '1 KiB',
    '1.43 MiB',
    '1 TiB',
  ]);
  assert.equal(formatMiB(1023), '1,023 MiB');
});

test('money keeps the digits of small amounts', () => {
  assert.deepEqual([0, 4, 123.456, 0.5, 0.0123].map(formatCents), [
    '$0.00',
    '$0.04',
    '$1.23',
    '$0.005',
    '$0.000123',
  ]);
});

test('durations have their two largest units', () => {
  assert.deepEqual([12, 1500, 65_000, 3_600_000, 90_061_000].map(formatDuration), [
    '12 ms',
    '1 s',
    '1 min 5 s',
    '1 h',
    '1 d 1 h',
  ]);
});

test('ages are of the past or the future', () => {
  const now = Date.parse('2026-11-27T10:00:00Z');
  assert.equal(formatAge('2026-11-27T09:58:00Z', now), '2 min ago');
  assert.equal(formatAge('2026-11-27T12:00:00Z', now), 'in 2 h');
  assert.equal(formatAge('2026-11-27T10:00:01Z', now), 'now');
});

test('an image is shown without its digest and the parts that all have', () => {
  assert.equal(formatImage(`docker.io/library/node:22-slim@sha256:${'0'.repeat(64)}`), 'node:22-slim');
  assert.equal(formatImage('registry.test/docker.io/a:1'), 'registry.test/docker.io/a:1');
});
