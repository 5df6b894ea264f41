import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MetricsPoint } from '../../../../../sdk/src/index.ts';
import { CHARTS, toChartData, topOf } from './chart-data.ts';

const START = Date.parse('2026-11-27T06:00:00.000Z') / 1000;
const point = (seconds: number, changes: Partial<MetricsPoint> = {}): MetricsPoint => ({
  at: new Date((START + seconds) * 1000).toISOString(),
  durationSeconds: 10,
  cpuUtilization: 0.5,
  memoryBytes: 100,
  diskUsedBytes: 0,
  diskReadBytes: 0,
  diskWrittenBytes: 0,
  networkReceivedBytes: 0,
  networkSentBytes: 0,
  networkReceivedPackets: 0,
  networkSentPackets: 0,
  ...changes,
});
const linesOf = (id: string) => CHARTS.find((chart) => chart.id === id)?.lines ?? [];

test('amounts are shown as rates over the time in which they were used', () => {
  const points = [
    point(10, { networkReceivedBytes: 1000, networkSentBytes: 50 }),
    point(20, { durationSeconds: 0 }),
  ];
  assert.deepEqual(toChartData(linesOf('network'), points, 10), [
    [START + 10, START + 20],
    [100, 0],
    [5, 0],
  ]);
});

test('a time without measurements is a gap, not a line', () => {
  const points = [point(10), point(20), point(200), point(222)];
  assert.deepEqual(toChartData(linesOf('cpu'), points, 10), [
    [START + 10, START + 20, START + 30, START + 200, START + 222],
    [0.5, 0.5, null, 0.5, 0.5],
  ]);
});

test('without points the columns are empty', () => {
  assert.deepEqual(toChartData(linesOf('disk'), [], 10), [[], [], []]);
});

test('an axis has room above the highest value', () => {
  assert.equal(topOf(0, 1024), 1024);
  assert.equal(topOf(2000, 1024), 2200);
});
