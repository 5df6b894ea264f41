import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildPoints, findUtilization } from './build-points.ts';
import type { VmSample } from './sample-ring.ts';

const START_MS = 1_795_000_000_000;
const ALL = { since_ms: 0, step_s: 10 };

/** A sample `atS` seconds after the start. */
function sampleAt(atS: number, fields: Partial<VmSample> = {}): VmSample {
  return {
    atMs: START_MS + atS * 1000,
    monotonicMs: atS * 1000,
    instance: 1,
    cpuMs: 0,
    memBytes: 0,
    diskBytes: 0,
    readBytes: 0,
    writtenBytes: 0,
    receivedBytes: 0,
    sentBytes: 0,
    receivedPackets: 0,
    sentPackets: 0,
    ...fields,
  };
}

test('a point has what was used between two samples, and what was held at the later one', () => {
  const samples = [
    sampleAt(0, { cpuMs: 100, memBytes: 9, writtenBytes: 50, sentPackets: 3 }),
    sampleAt(10, { cpuMs: 5100, memBytes: 7, diskBytes: 4, writtenBytes: 70, sentPackets: 4 }),
  ];
  assert.deepEqual(buildPoints(samples, ALL, 2), [
    {
      at_ms: START_MS + 10_000,
      duration_ms: 10_000,
      cpu_utilization: 0.25,
      mem_bytes: 7,
      disk_bytes: 4,
      read_bytes: 0,
      written_bytes: 20,
      received_bytes: 0,
      sent_bytes: 0,
      received_packets: 0,
      sent_packets: 1,
    },
  ]);
});

test('no sample or a single one makes no point', () => {
  assert.deepEqual(buildPoints([], ALL, 1), []);
  assert.deepEqual(buildPoints([sampleAt(0)], ALL, 1), []);
});

test('another VM of the sandbox begins anew, and the time between both is in no point', () => {
  const samples = [
    sampleAt(0, { cpuMs: 1000 }),
    sampleAt(10, { cpuMs: 2000 }),
    sampleAt(500, { cpuMs: 10, instance: 2 }),
    sampleAt(510, { cpuMs: 20, instance: 2 }),
  ];
  const points = buildPoints(samples, ALL, 1);
  assert.deepEqual(
    points.map(({ at_ms, cpu_utilization }) => [(at_ms - START_MS) / 1000, cpu_utilization]),
    [
      [10, 0.1],
      [510, 0.001],
    ],
  );
});

test('a clock that is set back, and a counter that counts back, make no negative amounts', () => {
  const samples = [
    sampleAt(0, { receivedBytes: 100 }),
    { ...sampleAt(10, { receivedBytes: 40 }), atMs: START_MS - 60_000 },
  ];
  const [point] = buildPoints(samples, ALL, 1);
  assert.deepEqual([point?.duration_ms, point?.received_bytes], [10_000, 0]);
});

test('only points after `since` are given', () => {
  const samples = [0, 10, 20, 30].map((atS) => sampleAt(atS));
  const points = buildPoints(samples, { ...ALL, since_ms: START_MS + 10_000 }, 1);
  assert.deepEqual(
    points.map(({ at_ms }) => at_ms - START_MS),
    [20_000, 30_000],
  );
});

test('with a longer step, amounts add up, CPU is the mean, and levels are the last ones', () => {
  const samples = Array.from({ length: 13 }, (_, index) =>
    sampleAt(10 * index, { cpuMs: index < 6 ? 0 : 1000 * (index - 6), readBytes: index, memBytes: index }),
  );
  const points = buildPoints(samples, { ...ALL, step_s: 60 }, 1);
  assert.equal(
    points.reduce((sum, { read_bytes }) => sum + read_bytes, 0),
    12,
  );
  assert.equal(
    points.reduce((sum, { duration_ms }) => sum + duration_ms, 0),
    120_000,
  );
  assert.ok(points.length >= 2 && points.length <= 3);
  assert.equal(points.at(-1)?.mem_bytes, 12);
});

test('CPU time counts as a part of that of all vCPUs, and never divides by nothing', () => {
  assert.equal(findUtilization(500, 1000, 1), 0.5);
  assert.equal(findUtilization(500, 1000, 4), 0.125);
  assert.equal(findUtilization(0, 0, 1), 0);
});
