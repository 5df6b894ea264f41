/**
 * Measures a sandbox. This is no use of it: it neither restarts the idle timer nor resumes a hibernated sandbox, so that
 * a dashboard keeps no sandbox alive.
 */
import { AppError, type MetricsPoint, type SandboxMetrics } from '@coppice/contract';
import type {
  GuestMetrics,
  VmMetrics,
  VmMetricsQuery,
  VmNow,
  VmPoint,
} from '../../lib/protocol/metrics-protocol.ts';
import type { RunnerMeasures } from '../placement/runner-measures.ts';

const MIB = 2 ** 20;
const UNKNOWN: VmMetrics = { now: null, series: [] };

export async function measureSandbox(
  runner: RunnerMeasures,
  id: string,
  query: VmMetricsQuery,
): Promise<SandboxMetrics> {
  const { now, series } = await findVmMetrics(runner, id, query);
  const guest = now === null ? undefined : await runner.guest(id).catch(() => undefined);
  return {
    now: now === null ? null : buildNow(now, guest),
    series: series.map(buildPoint),
    step_seconds: query.step_s,
  };
}

/** A sandbox that is being created has no VM yet, and one that is hibernated for long has no samples any more. */
async function findVmMetrics(runner: RunnerMeasures, id: string, query: VmMetricsQuery): Promise<VmMetrics> {
  try {
    return await runner.vm(id, query);
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return UNKNOWN;
    throw error;
  }
}

function buildNow(now: VmNow, guest: GuestMetrics | undefined): NonNullable<SandboxMetrics['now']> {
  return {
    at: new Date(now.at_ms).toISOString(),
    cpu: { used_seconds: now.cpu_ms / 1000, utilization: now.cpu_utilization },
    memory: { host_bytes: now.mem_bytes, size_bytes: now.mem_mib * MIB },
    disk: {
      used_bytes: now.disk_bytes,
      size_bytes: now.disk_mib * MIB,
      read_bytes: now.read_bytes,
      written_bytes: now.written_bytes,
    },
    workspace: now.workspace,
    network: now.network,
    guest_reported: guest === undefined ? null : buildReport(guest),
  };
}

function buildReport({ mem_total_bytes, mem_available_bytes, ...rest }: GuestMetrics) {
  return { memory_total_bytes: mem_total_bytes, memory_available_bytes: mem_available_bytes, ...rest };
}

function buildPoint(point: VmPoint): MetricsPoint {
  return {
    at: new Date(point.at_ms).toISOString(),
    duration_seconds: point.duration_ms / 1000,
    cpu_utilization: point.cpu_utilization,
    memory_bytes: point.mem_bytes,
    disk_used_bytes: point.disk_bytes,
    disk_read_bytes: point.read_bytes,
    disk_written_bytes: point.written_bytes,
    network_received_bytes: point.received_bytes,
    network_sent_bytes: point.sent_bytes,
    network_received_packets: point.received_packets,
    network_sent_packets: point.sent_packets,
  };
}
