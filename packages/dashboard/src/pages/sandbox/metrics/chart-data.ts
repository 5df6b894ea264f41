/** Measurements of a sandbox as the lines of charts. */
import type { MetricsPoint } from '../../../../../sdk/src/index.ts';

/** A line of a chart. */
export interface Line {
  label: string;
  /** Custom property of the colour. */
  color: '--accent' | '--busy';
  valueOf: (point: MetricsPoint) => number;
}

export interface ChartSpec {
  id: string;
  title: string;
  lines: readonly Line[];
  unit: 'share' | 'bytes' | 'bytes_per_second';
}

export const CHARTS: readonly ChartSpec[] = [
  {
    id: 'cpu',
    title: 'CPU',
    unit: 'share',
    lines: [{ label: 'Of all CPUs', color: '--accent', valueOf: ({ cpuUtilization }) => cpuUtilization }],
  },
  {
    id: 'memory',
    title: 'Memory',
    unit: 'bytes',
    lines: [{ label: 'Occupied on the host', color: '--accent', valueOf: ({ memoryBytes }) => memoryBytes }],
  },
  {
    id: 'disk',
    title: 'Disk traffic',
    unit: 'bytes_per_second',
    lines: [
      { label: 'Read', color: '--accent', valueOf: (point) => rate(point, point.diskReadBytes) },
      { label: 'Written', color: '--busy', valueOf: (point) => rate(point, point.diskWrittenBytes) },
    ],
  },
  {
    id: 'network',
    title: 'Network',
    unit: 'bytes_per_second',
    lines: [
      { label: 'Received', color: '--accent', valueOf: (point) => rate(point, point.networkReceivedBytes) },
      { label: 'Sent', color: '--busy', valueOf: (point) => rate(point, point.networkSentBytes) },
    ],
  },
];

function rate({ durationSeconds }: MetricsPoint, amount: number): number {
  return durationSeconds > 0 ? amount / durationSeconds : 0;
}

/** Times in seconds, and the values of each line; null where nothing was measured. */
export type ChartData = readonly [times: readonly number[], ...values: (readonly (number | null)[])[]];

/** Returns the columns of a chart. Between points that are further apart than a step, the line has a gap. */
export function toChartData(
  lines: readonly Line[],
  points: readonly MetricsPoint[],
  stepSeconds: number,
): ChartData {
  const times: number[] = [];
  const values: (number | null)[][] = lines.map(() => []);
  for (const point of points) {
    const time = Date.parse(point.at) / 1000;
    const before = times.at(-1);
    if (before !== undefined && time - before > stepSeconds * GAP_STEPS) {
      times.push(before + stepSeconds);
      for (const column of values) column.push(null);
    }
    times.push(time);
    for (const [index, { valueOf }] of lines.entries()) values[index]?.push(valueOf(point));
  }
  return [times, ...values];
}

/** Points may be a little late, and a quiet sandbox is measured less often. */
const GAP_STEPS = 2.5;

/** Steps of an axis of bytes: powers of two, so that its numbers are round in KiB or MiB. */
export const BYTE_STEPS: readonly number[] = Array.from({ length: 46 }, (_, power) => 2 ** power);

/** Returns the upper end of an axis: room above the highest value, and never nothing. */
export function topOf(highest: number, least: number): number {
  return Math.max(least, highest * 1.1);
}
