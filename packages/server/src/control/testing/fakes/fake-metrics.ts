/** Measurements of the fake runner. Tests may replace them, also with what violates the protocol. */
import type { ServerHttp2Stream } from 'node:http2';
import {
  VmMetricsQuery,
  type GuestMetrics,
  type RunnerMetrics,
  type VmNow,
  type VmPoint,
} from '../../../lib/protocol/metrics-protocol.ts';
import { answer, noVm } from './fake-answers.ts';

export const RUNNER_METRICS: RunnerMetrics = {
  versions: { machine: 'a1b2', qemu: '10.0.0', kernel: '6.12.1', agent: 'c3d4' },
  accelerator: 'tcg',
  confinement: 'full',
  vms: { running: 2 },
  paused_vms: 1,
  capacity: {
    mem_mib: { promised: 2048, limit: 4096 },
    vcpus: { promised: 2, limit: 32 },
    mem_available_mib: 3000,
    starts: { running: 1, waiting: 5 },
    disk: { free_mib: 4096, reserve_mib: 2048 },
  },
  warm_pool: { size: 3, limit: 4, hits: 10, misses: 2 },
  disks: { attached: 1, detaching: 2, waiting: 1, dirty_bytes: 12_345 },
  process: { cpu_ms: 1500, resident_bytes: 80_000_000 },
};

export const VM_NOW: VmNow = {
  at_ms: Date.UTC(2026, 10, 26, 12),
  cpu_ms: 12_345,
  cpu_utilization: 0.25,
  mem_bytes: 100_000_000,
  mem_mib: 1024,
  disk_bytes: 30_000_000,
  disk_mib: 4096,
  read_bytes: 11,
  written_bytes: 22,
  workspace: null,
  network: { received_bytes: 1, sent_bytes: 2, received_packets: 3, sent_packets: 4 },
};

export const VM_POINT: VmPoint = {
  at_ms: VM_NOW.at_ms,
  duration_ms: 10_001,
  cpu_utilization: 0.5,
  mem_bytes: 99,
  disk_bytes: 88,
  read_bytes: 7,
  written_bytes: 6,
  received_bytes: 5,
  sent_bytes: 4,
  received_packets: 3,
  sent_packets: 2,
};

export const GUEST_METRICS: GuestMetrics = {
  mem_total_bytes: 1_000_000_000,
  mem_available_bytes: 800_000_000,
  disk_total_bytes: 4_000_000_000,
  disk_used_bytes: 50_000_000,
  load1: 0.75,
  processes: 3,
};

export class FakeMetrics {
  runner: unknown = RUNNER_METRICS;
  /** The answer for a VM that runs, and, without `now`, for one that has run. */
  vm: unknown = { now: VM_NOW, series: [VM_POINT] };
  /** Ids of sandboxes without a VM whose last hour is known. */
  readonly left = new Set<string>();
  readonly queries: VmMetricsQuery[] = [];
  onGuest: (stream: ServerHttp2Stream) => void = (stream) => answer(stream, 200, GUEST_METRICS);
  readonly #hasVm: (id: string) => boolean;

  constructor(hasVm: (id: string) => boolean) {
    this.#hasVm = hasVm;
  }

  answerVm(stream: ServerHttp2Stream, id: string, url: URL): void {
    this.queries.push(VmMetricsQuery.parse(Object.fromEntries(url.searchParams)));
    if (this.#hasVm(id)) answer(stream, 200, this.vm);
    else if (this.left.has(id)) answer(stream, 200, { now: null, series: [VM_POINT] });
    else throw noVm(id);
  }

  answerGuest(stream: ServerHttp2Stream): void {
    this.onGuest(stream);
  }
}
