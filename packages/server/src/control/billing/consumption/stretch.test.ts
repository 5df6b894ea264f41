import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { SandboxRow, SandboxUpdate } from '../../sandbox/record/sandbox-tables.ts';
import { buildEnding } from '../../sandbox/record/ending.ts';
import { buildSandboxRow } from '../../testing/sandbox-row.ts';
import { SimulatedLife } from '../../testing/simulated-life.ts';
import { findBilledToDateMs, findClosedStretch, findOpenStretch, type Stretch } from './stretch.ts';

const CREATED_AT = 1_700_000_000_000;

const row = buildSandboxRow({
  created_at: CREATED_AT,
  boot_id: SimulatedLife.bootId(0),
  created_boot_ms: 1_000_000.25,
  last_seen_boot_ms: 1_000_000.25,
});

/** Returns a simulated life in memory and the segments that it produces. */
function simulate(): { life: SimulatedLife; segments: Stretch[] } {
  const segments: Stretch[] = [];
  const write = async (from: SandboxRow, change: SandboxUpdate): Promise<SandboxRow> => {
    const closed = findClosedStretch(from, change);
    if (closed !== undefined) segments.push(closed);
    return { ...from, ...change } as SandboxRow;
  };
  return { life: new SimulatedLife(row, write), segments };
}

const lengthOf = (stretches: readonly Stretch[]) =>
  stretches.reduce((sum, { startedAt, endedAt }) => sum + endedAt - startedAt, 0);

test('segments follow each other and add up to the bill, even if the boot clock has fractions of milliseconds', async () => {
  const times = fc.array(
    fc.tuple(fc.double({ min: 0, max: 1e7, noNaN: true }), fc.double({ min: 0, max: 1e7, noNaN: true })),
    { maxLength: 10 },
  );
  await fc.assert(
    fc.asyncProperty(times, async (stretches) => {
      const { life, segments } = simulate();
      for (const [runsMs, sleepsMs] of stretches) {
        await life.live({ do: 'run', ms: runsMs });
        await life.live({ do: 'sleep', ms: sleepsMs, boots: false });
      }
      await life.live({ do: 'run', ms: 1000.5 });
      const before = findBilledToDateMs(life.row, life.now);
      await life.destroy();
      assert.equal(life.row.billed_ms, before, 'the bill to date equals the cost of an end now');
      assert.equal(lengthOf(segments), life.row.billed_ms);
      assert.equal(life.row.uptime_ms, life.row.billed_ms + life.row.hibernated_ms);
      const ranMs = life.runs.reduce((sum, { from, to }) => sum + to - from, 0);
      assert.ok(Math.abs(life.row.billed_ms - ranMs) <= stretches.length + 1);
      for (const [index, { startedAt, endedAt }] of segments.entries()) {
        assert.ok(startedAt < endedAt);
        assert.ok(endedAt <= (segments[index + 1]?.startedAt ?? Infinity));
      }
    }),
  );
});

test('only a running sandbox has an open stretch; one that is being created is not billed yet', async () => {
  const { life } = simulate();
  await life.live({ do: 'run', ms: 5000 });
  assert.deepEqual(findOpenStretch(life.row, life.now), {
    startedAt: CREATED_AT,
    endedAt: CREATED_AT + 5000,
  });
  assert.equal(findOpenStretch({ ...life.row, status: 'creating' }, life.now), undefined);
  await life.hibernate();
  assert.equal(findOpenStretch(life.row, life.now), undefined);
  assert.equal(findBilledToDateMs(life.row, life.now), 5000);
});

test('a failed create has no segment, however long it took', () => {
  const now = { bootId: SimulatedLife.bootId(0), bootMs: 1_090_000, wallMs: CREATED_AT + 90_000 };
  const ending = buildEnding(
    { ...row, status: 'creating' },
    { event: 'start_failed', reason: 'create_failed', now },
  );
  assert.equal(findClosedStretch(row, ending), undefined);
  assert.deepEqual([ending.uptime_ms, ending.billed_ms, ending.cost_units], [0, 0, '0']);
});
