import type { CallOptions } from '../transport/client-options.ts';
import type { Transport } from '../transport/transport.ts';
import {
  buildQuery,
  readArray,
  readNumber,
  readObject,
  readOptionalNumber,
  readString,
  type WireObject,
} from '../transport/wire.ts';

/** Options of `sandbox.metrics()`. */
export interface MetricsOptions extends CallOptions {
  /** Only points of the series that end later. Default: an hour ago. */
  since?: Date | undefined;
  /** Seconds of each point of the series: a multiple of 10, at most 3600. Default: 10. */
  step?: number | undefined;
}

/** Reported by the agent in the sandbox. Root in the sandbox can make it report anything. */
export interface GuestReport {
  memoryTotalBytes: number;
  memoryAvailableBytes: number;
  diskTotalBytes: number;
  diskUsedBytes: number;
  /** Load average of the last minute. */
  load1: number;
  processes: number;
}

/** Bytes and packets at the network device, also of refused packets. */
export interface NetworkUsage {
  receivedBytes: number;
  sentBytes: number;
  receivedPackets: number;
  sentPackets: number;
}

/** Usage of a running sandbox, measured on the host. Amounts count from its last start or resume. */
export interface MetricsNow {
  /** ISO 8601 UTC. */
  at: string;
  /** `utilization`: a part of all vCPUs in the last seconds; null in the first ones. */
  cpu: { usedSeconds: number; utilization: number | null };
  /** `hostBytes`: memory of the host that the sandbox occupies. */
  memory: { hostBytes: number; sizeBytes: number };
  /** The scratch disk; `readBytes` and `writtenBytes` are of all disks. */
  disk: { usedBytes: number; sizeBytes: number; readBytes: number; writtenBytes: number };
  /** The persistent disk; null without one. `dirtyBytes` are not yet in the object store. */
  workspace: { sizeBytes: number; dirtyBytes: number } | null;
  /** Null without a network device. */
  network: NetworkUsage | null;
  /** Not measured on the host. Null if the sandbox does not answer within 2 s. */
  guestReported: GuestReport | null;
}

/** Usage of a sandbox in some seconds. */
export interface MetricsPoint {
  /** End of these seconds, ISO 8601 UTC. */
  at: string;
  /** Time in which the amounts were used. */
  durationSeconds: number;
  /** Mean part of all vCPUs. */
  cpuUtilization: number;
  /** At the end. */
  memoryBytes: number;
  /** At the end. */
  diskUsedBytes: number;
  diskReadBytes: number;
  diskWrittenBytes: number;
  networkReceivedBytes: number;
  networkSentBytes: number;
  networkReceivedPackets: number;
  networkSentPackets: number;
}

/** Usage of a sandbox. */
export interface SandboxMetrics {
  /** Null while the sandbox does not run. */
  now: MetricsNow | null;
  /** At most the last hour, oldest first. Times without measurements have no points. */
  series: MetricsPoint[];
  stepSeconds: number;
}

/** Fetches the usage of the sandbox at `sandboxPath`. */
export async function fetchMetrics(
  transport: Transport,
  sandboxPath: string,
  { since, step, signal }: MetricsOptions,
): Promise<SandboxMetrics> {
  const query = buildQuery({ since: since?.toISOString(), step });
  const answer = await transport.callJson(
    { method: 'GET', path: `${sandboxPath}/metrics`, query, idempotent: true, signal },
    parseMetrics,
  );
  return answer.value;
}

function parseMetrics(value: unknown): SandboxMetrics {
  const metrics = readObject(value, 'the metrics');
  return {
    now: readOptional(metrics, 'now', parseNow),
    series: readArray(metrics['series'], 'series', parsePoint),
    stepSeconds: readNumber(metrics, 'step_seconds'),
  };
}

/** Returns null if the field is null. */
function readOptional<T>(object: WireObject, field: string, parse: (inner: WireObject) => T): T | null {
  return object[field] === null ? null : parse(readObject(object[field], field));
}

function parseNow(now: WireObject): MetricsNow {
  const cpu = readObject(now['cpu'], 'cpu');
  const memory = readObject(now['memory'], 'memory');
  const disk = readObject(now['disk'], 'disk');
  return {
    at: readString(now, 'at'),
    cpu: {
      usedSeconds: readNumber(cpu, 'used_seconds'),
      utilization: readOptionalNumber(cpu, 'utilization'),
    },
    memory: { hostBytes: readNumber(memory, 'host_bytes'), sizeBytes: readNumber(memory, 'size_bytes') },
    disk: {
      usedBytes: readNumber(disk, 'used_bytes'),
      sizeBytes: readNumber(disk, 'size_bytes'),
      readBytes: readNumber(disk, 'read_bytes'),
      writtenBytes: readNumber(disk, 'written_bytes'),
    },
    workspace: readOptional(now, 'workspace', (workspace) => ({
      sizeBytes: readNumber(workspace, 'size_bytes'),
      dirtyBytes: readNumber(workspace, 'dirty_bytes'),
    })),
    network: readOptional(now, 'network', parseNetwork),
    guestReported: readOptional(now, 'guest_reported', parseReport),
  };
}

function parseNetwork(network: WireObject): NetworkUsage {
  return {
    receivedBytes: readNumber(network, 'received_bytes'),
    sentBytes: readNumber(network, 'sent_bytes'),
    receivedPackets: readNumber(network, 'received_packets'),
    sentPackets: readNumber(network, 'sent_packets'),
  };
}

function parseReport(report: WireObject): GuestReport {
  return {
    memoryTotalBytes: readNumber(report, 'memory_total_bytes'),
    memoryAvailableBytes: readNumber(report, 'memory_available_bytes'),
    diskTotalBytes: readNumber(report, 'disk_total_bytes'),
    diskUsedBytes: readNumber(report, 'disk_used_bytes'),
    load1: readNumber(report, 'load1'),
    processes: readNumber(report, 'processes'),
  };
}

function parsePoint(value: unknown): MetricsPoint {
  const point = readObject(value, 'a point of the series');
  return {
    at: readString(point, 'at'),
    durationSeconds: readNumber(point, 'duration_seconds'),
    cpuUtilization: readNumber(point, 'cpu_utilization'),
    memoryBytes: readNumber(point, 'memory_bytes'),
    diskUsedBytes: readNumber(point, 'disk_used_bytes'),
    diskReadBytes: readNumber(point, 'disk_read_bytes'),
    diskWrittenBytes: readNumber(point, 'disk_written_bytes'),
    networkReceivedBytes: readNumber(point, 'network_received_bytes'),
    networkSentBytes: readNumber(point, 'network_sent_bytes'),
    networkReceivedPackets: readNumber(point, 'network_received_packets'),
    networkSentPackets: readNumber(point, 'network_sent_packets'),
  };
}
