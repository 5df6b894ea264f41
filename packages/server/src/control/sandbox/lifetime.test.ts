import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxRow } from '../db/tables.ts';
import { buildEnding } from './ending.ts';
import { findAgeMs, findAgeWhenSeenMs, findIdleMs } from './lifetime.ts';

const HOUR_MS = 3_600_000;
const CREATED_AT = 1_700_000_000_000;

/** Created 1000 s after the boot, seen last 60 s later, when it had been idle for 20 s. */
const row: SandboxRow = {
  id: 'run00000000000000000001',
  organization_id: 'org1',
  status: 'running',
  status_reason: null,
  image: 'coppice/base:1',
  region: 'us',
  vcpus: 1,
  mem_mib: 1024,
  disk_mib: 1024,
  timeout_s: 300,
  max_lifetime_s: null,
  labels: {},
  parent_id: null,
  origin: null,
  auto_hibernate: false,
  hibernation_id: null,
  hibernated_at: null,
  hibernated_boot_ms: null,
  hibernated_ms: 0,
  create_ms: 1,
  created_at: CREATED_AT,
  last_active_at: CREATED_AT + 40_000,
  last_seen_at: CREATED_AT + 60_000,
  ended_at: null,
  boot_id: 'this',
  created_boot_ms: 1_000_000,
  last_seen_boot_ms: 1_060_000,
  cpu_ms: 0,
  mem_peak_bytes: 0,
  uptime_ms: 0,
  cost_units: '0',
};

/** 100 s after the create, on a wall clock that was set by `stepMs`. */
const later = (stepMs: number, bootId = 'this') => ({
  bootId,
  bootMs: 1_100_000,
  wallMs: CREATED_AT + 100_000 + stepMs,
});

for (const stepMs of [0, HOUR_MS, -HOUR_MS]) {
  test(`age, idle time and bill are the same when the clock is set by ${stepMs / HOUR_MS} h`, () => {
    const now = later(stepMs);
    assert.equal(findAgeMs(row, now), 100_000);
    assert.equal(findIdleMs(row, now), 60_000);
    const end = {
      id: row.id,
      reason: 'destroyed' as const,
      cpu_ms: 1,
      mem_peak_bytes: 1,
      ended_at: new Date(now.wallMs).toISOString(),
      ended_on_boot: { boot_id: 'this', ms: 1_090_000 },
    };
    const ending = buildEnding(row, { status: 'destroyed', reason: 'requested', end, now });
    assert.deepEqual([ending.uptime_ms, ending.ended_at], [90_000, CREATED_AT + 90_000]);
    const lost = buildEnding(row, { status: 'failed', reason: 'vm_lost', now });
    assert.equal(lost.uptime_ms, 60_000);
    const asked = buildEnding(row, { status: 'destroyed', reason: 'requested', now });
    assert.equal(asked.uptime_ms, 100_000);
  });
}

test('after a boot of the host only the wall clock is left, and nothing is negative', () => {
  assert.equal(findAgeMs(row, later(0, 'next')), 100_000);
  assert.equal(findAgeMs(row, later(-HOUR_MS, 'next')), 0);
  assert.equal(findIdleMs(row, later(-HOUR_MS, 'next')), 20_000);
  assert.equal(findAgeWhenSeenMs(row), 60_000);
});

test('a record of a version that did not measure is judged by the wall clock', () => {
  const old = { ...row, boot_id: null, created_boot_ms: null, last_seen_boot_ms: null };
  assert.equal(findAgeMs(old, later(0)), 100_000);
  assert.equal(findAgeWhenSeenMs(old), 60_000);
  assert.equal(findIdleMs(old, later(0)), 60_000);
});
