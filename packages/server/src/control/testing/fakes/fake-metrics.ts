/** Measurements of the fake runner. Tests may replace them, also with what violates the protocol. */
import type { RunnerMetrics } from '../../../lib/protocol/metrics-protocol.ts';

export class FakeMetrics {
  runner: unknown = RUNNER_METRICS;
}

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
