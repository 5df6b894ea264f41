/** Builds a series of points from samples. */
import { METRICS_SAMPLE_S } from '@coppice/contract';
import type { VmMetricsQuery, VmPoint } from '../../lib/protocol/metrics-protocol.ts';
import type { VmSample } from './sample-ring.ts';

/** Fields that only grow while a VM lives. */
const AMOUNTS = [
  'cpuMs',
  'readBytes',
  'writtenBytes',
  'receivedBytes',
  'sentBytes',
  'receivedPackets',
  'sentPackets',
] as const;

/** The change from one sample to a later one, or of several such changes together. */
interface Change extends Pick<VmSample, (typeof AMOUNTS)[number]> {
  /** The later sample. */
  last: VmSample;
  durationMs: number;
}

/**
 * `samples` are in the order of time. The time between two VMs of a sandbox is in no point. With a longer step, points
 * that end in the same step of the clock become one.
 */
export function buildPoints(
  samples: readonly VmSample[],
  { since_ms, step_s }: VmMetricsQuery,
  vcpus: number,
): VmPoint[] {
  const changes = listChanges(samples).filter(({ last }) => last.atMs > since_ms);
  const merged = step_s === METRICS_SAMPLE_S ? changes : mergeSteps(changes, step_s * 1000);
  return merged.map((change) => toPoint(change, vcpus));
}

/** CPU time between two samples, as a part of that of all vCPUs. More than 1 is possible: the VMM works, too. */
export function findUtilization(cpuMs: number, durationMs: number, vcpus: number): number {
  return Math.round((1e4 * cpuMs) / Math.max(1, durationMs * vcpus)) / 1e4;
}

function listChanges(samples: readonly VmSample[]): Change[] {
  return samples.slice(1).flatMap((last, index) => {
    const former = samples[index];
    return former?.instance === last.instance ? [findChange(former, last)] : [];
  });
}

/** A counter that cannot be read for a moment must not count back. */
function findChange(former: VmSample, last: VmSample): Change {
  const amounts = AMOUNTS.map((field) => [field, Math.max(0, last[field] - former[field])]);
  const durationMs = Math.max(0, last.monotonicMs - former.monotonicMs);
  return { ...(Object.fromEntries(amounts) as Change), last, durationMs };
}

function mergeSteps(changes: readonly Change[], stepMs: number): Change[] {
  const steps: Change[] = [];
  let step = -1;
  for (const change of changes) {
    const own = Math.floor(change.last.atMs / stepMs);
    const former = own === step ? steps.pop() : undefined;
    steps.push(former === undefined ? change : add(former, change));
    step = own;
  }
  return steps;
}

function add(former: Change, change: Change): Change {
  const amounts = AMOUNTS.map((field) => [field, former[field] + change[field]]);
  const durationMs = former.durationMs + change.durationMs;
  return { ...(Object.fromEntries(amounts) as Change), last: change.last, durationMs };
}

function toPoint({ last, durationMs, ...amounts }: Change, vcpus: number): VmPoint {
  return {
    at_ms: Math.round(last.atMs),
    duration_ms: Math.round(durationMs),
    cpu_utilization: findUtilization(amounts.cpuMs, durationMs, vcpus),
    mem_bytes: last.memBytes,
    disk_bytes: last.diskBytes,
    read_bytes: amounts.readBytes,
    written_bytes: amounts.writtenBytes,
    received_bytes: amounts.receivedBytes,
    sent_bytes: amounts.sentBytes,
    received_packets: amounts.receivedPackets,
    sent_packets: amounts.sentPackets,
  };
}
