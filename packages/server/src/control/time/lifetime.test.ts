import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import { computeCostUnits } from '@coppice/contract';
import type { HostMoment } from '../../lib/host-clock.ts';
import { toBootMoment, type CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import { buildSandboxRow } from '../testing/sandbox-row.ts';
import { buildEnding } from '../sandbox/record/ending.ts';
import { buildHibernated, buildResumed } from '../sandbox/record/hibernation.ts';
import { findAgeMs, findAgeWhenSeenMs, findHibernatedMs, findIdleMs, keepLastSeen } from './lifetime.ts';

const HOUR_MS = 3_600_000;
const CREATED_AT = 1_700_000_000_000;

/** Created 1000 s after the boot, seen last 60 s later, when it had been idle for 20 s. */
const row = buildSandboxRow({
  created_at: CREATED_AT,
  last_active_at: CREATED_AT + 40_000,
  last_seen_at: CREATED_AT + 60_000,
  boot_id: 'this',
  created_boot_ms: 1_000_000,
  last_seen_boot_ms: 1_060_000,
});

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
    const ending = buildEnding(row, { event: 'ended', reason: 'requested', end, now });
    assert.deepEqual([ending.uptime_ms, ending.ended_at], [90_000, CREATED_AT + 90_000]);
    const lost = buildEnding(row, { event: 'lost', reason: 'vm_lost', now });
    assert.equal(lost.uptime_ms, 60_000);
    const asked = buildEnding(row, { event: 'removed', reason: 'requested', now });
    assert.equal(asked.uptime_ms, 100_000);
  });
}

test('of two moments at which the VM was seen the later one counts, by the time since the boot, and none of another boot', () => {
  const seen = { boot_id: 'this', last_seen_at: CREATED_AT - HOUR_MS, last_seen_boot_ms: 1_090_000 };
  assert.equal(findAgeWhenSeenMs(keepLastSeen(row, seen)), 90_000);
  assert.equal(keepLastSeen(row, { ...seen, last_seen_boot_ms: 1_059_999 }), row);
  assert.equal(keepLastSeen(row, { ...seen, boot_id: 'next' }), row);
  assert.equal(keepLastSeen(row, { ...seen, boot_id: null }), row);
  const old = { ...row, boot_id: null, created_boot_ms: null, last_seen_boot_ms: null };
  const later = { ...seen, last_seen_at: CREATED_AT + 80_000 };
  assert.equal(findAgeWhenSeenMs(keepLastSeen(old, later)), 80_000);
  assert.equal(keepLastSeen(old, seen), old);
});

test('after a boot of the host only the wall clock counts, and no time is negative', () => {
  assert.equal(findAgeMs(row, later(0, 'next')), 100_000);
  assert.equal(findAgeMs(row, later(-HOUR_MS, 'next')), 0);
  assert.equal(findIdleMs(row, later(-HOUR_MS, 'next')), 20_000);
  assert.equal(findAgeWhenSeenMs(row), 60_000);
});

test('a sandbox that a boot of the host ended is billed until it was seen last, however late the end is reported', () => {
  const now = { bootId: 'next', bootMs: 20_000, wallMs: CREATED_AT + 5 * HOUR_MS };
  const end = {
    id: row.id,
    reason: 'vmm_lost' as const,
    cpu_ms: 1,
    mem_peak_bytes: 1,
    ended_at: new Date(now.wallMs).toISOString(),
    ended_on_boot: { boot_id: 'next', ms: now.bootMs },
  };
  const endings = [
    { event: 'lost', reason: 'vm_lost' },
    // Due, or requested, before the runner's event came.
    { event: 'removed', reason: 'max_lifetime' },
    { event: 'removed', reason: 'requested' },
  ] as const;
  for (const how of endings) {
    const ending = buildEnding(row, { ...how, end, now });
    assert.deepEqual([ending.billed_ms, ending.ended_at], [60_000, CREATED_AT + 60_000], how.reason);
  }
});

test('a record of a version without boot times is measured by the wall clock', () => {
  const old = { ...row, boot_id: null, created_boot_ms: null, last_seen_boot_ms: null };
  assert.equal(findAgeMs(old, later(0)), 100_000);
  assert.equal(findAgeWhenSeenMs(old), 60_000);
  assert.equal(findIdleMs(old, later(0)), 60_000);
});

const capture: CaptureInfo = {
  id: `hib${'a'.repeat(20)}`,
  kind: 'hibernation',
  vm_id: row.id,
  image: row.image,
  vcpus: 1,
  mem_mib: 1024,
  disk_mib: 1024,
  size_bytes: 1,
  created_at: new Date(CREATED_AT + 70_000).toISOString(),
  pause_ms: 1,
  bound_to: {},
  usage: { cpu_ms: 100, mem_peak_bytes: 5 },
};

/** After `ms` of life, on a host that may have booted, or had its clock set, in between. */
const at = (ms: number, { bootId = 'this', stepMs = 0 } = {}) => ({
  bootId,
  bootMs: bootId === 'this' ? 1_000_000 + ms : 5_000 + ms,
  wallMs: CREATED_AT + ms + stepMs,
});

const billedMs = (life: SandboxRow, now: ReturnType<typeof at>): number => {
  const { cost_units } = buildEnding(life, { event: 'removed', reason: 'requested', now });
  const perMs = computeCostUnits({ vcpus: 1, memMiB: 1024, billedMs: 1 });
  return Number(BigInt(String(cost_units)) / perMs);
};

const hibernateAt = (life: SandboxRow, now: HostMoment): object =>
  buildHibernated(life, { ...capture, created_on_boot: toBootMoment(now) }, now);

const apply = (life: SandboxRow, change: object): SandboxRow => ({ ...life, ...change });

test('only running time is billed, whenever a sandbox is hibernated and resumed and however the clock is set', () => {
  const stretch = fc.record({
    runsMs: fc.integer({ min: 0, max: 1e6 }),
    sleepsMs: fc.integer({ min: 0, max: 1e9 }),
  });
  fc.assert(
    fc.property(
      fc.array(stretch, { maxLength: 10 }),
      fc.boolean(),
      fc.integer(),
      (stretches, isAsleep, stepMs) => {
        let life = row;
        let nowMs = 0;
        let ranMs = 0;
        for (const { runsMs, sleepsMs } of stretches) {
          nowMs += runsMs;
          ranMs += runsMs;
          life = apply(life, hibernateAt(life, at(nowMs, { stepMs })));
          nowMs += sleepsMs;
          life = apply(life, buildResumed(life, at(nowMs, { stepMs: -stepMs })));
        }
        if (isAsleep) life = apply(life, hibernateAt(life, at(nowMs)));
        const end = at(nowMs + 1000, { stepMs });
        assert.equal(billedMs(life, end), ranMs + (isAsleep ? 0 : 1000));
        assert.equal(findAgeMs(life, end), nowMs + 1000);
        assert.equal(life.cpu_ms, 100 * (stretches.length + (isAsleep ? 1 : 0)));
        assert.ok(life.mem_peak_bytes <= 5);
      },
    ),
  );
});

test('a hibernation that outlasts a boot of the host is measured by the wall clock, and the age continues', () => {
  const asleep = apply(row, hibernateAt(row, at(100_000)));
  const awake = apply(asleep, buildResumed(asleep, at(HOUR_MS, { bootId: 'next' })));
  assert.equal(awake.boot_id, 'next');
  assert.equal(awake.hibernated_ms, HOUR_MS - 100_000);
  const stepped = at(HOUR_MS + 50_000, { bootId: 'next', stepMs: -HOUR_MS });
  assert.equal(findAgeMs(awake, stepped), HOUR_MS + 50_000);
  assert.equal(findIdleMs(awake, stepped), 50_000);
  assert.equal(billedMs(awake, stepped), 150_000);
  assert.equal(findAgeWhenSeenMs(awake), HOUR_MS);
});

test('a hibernation that is reported late counts from the time of its capture, however the clock is set', () => {
  const saved = { ...capture, created_on_boot: toBootMoment(at(70_000)) };
  for (const stepMs of [0, HOUR_MS, -HOUR_MS]) {
    const now = at(100_000, { stepMs });
    const asleep = apply(row, buildHibernated(row, saved, now));
    assert.equal(findHibernatedMs(asleep, now), 30_000);
    assert.equal(billedMs(asleep, now), 70_000);
  }
});

test('a capture without the time since boot counts by the wall clock, but not from before the VM was seen to run', () => {
  const found = (now: HostMoment) => findHibernatedMs(apply(row, buildHibernated(row, capture, now)), now);
  assert.equal(found(at(100_000)), 30_000);
  assert.equal(found(at(100_000, { stepMs: HOUR_MS })), 40_000, 'not before it was seen to run');
  assert.equal(found(at(100_000, { stepMs: -HOUR_MS })), 0, 'not after now');
});

test('a sandbox that is destroyed while hibernated is not billed for the hibernation', () => {
  const asleep = apply(row, hibernateAt(row, at(60_000)));
  assert.equal(billedMs(asleep, at(HOUR_MS)), 60_000);
  const ending = buildEnding(asleep, { event: 'removed', reason: 'requested', now: at(HOUR_MS) });
  assert.equal(ending.uptime_ms, HOUR_MS);
  assert.equal(ending.hibernation_id, null);
});
