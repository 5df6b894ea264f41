/** Passes on the measurements of this control's runners, which are read at each scrape. Without them there is no value. */
import { Gauge, type Counter, type Registry } from 'prom-client';
import type { RunnerMetrics } from '../../lib/protocol/metrics-protocol.ts';
import { fillMetric, openMetric, type Reading } from './reading.ts';

const MIB = 2 ** 20;

const READINGS: readonly Reading<RunnerMetrics>[] = [
  {
    name: 'coppice_runner_vms',
    help: 'VMs of sandboxes, by phase.',
    label: 'phase',
    read: ({ vms }) => ({ creating: 0, running: 0, saving: 0, ending: 0, ended: 0, ...vms }),
  },
  {
    name: 'coppice_runner_paused_vms',
    help: 'VMs that are paused until a host disk has space or the object store has taken data.',
    read: (metrics) => metrics.paused_vms,
  },
  {
    name: 'coppice_runner_reserved_memory_bytes',
    help: 'Memory that is reserved for VMs.',
    read: ({ capacity }) => capacity.mem_mib.promised * MIB,
  },
  {
    name: 'coppice_runner_reservable_memory_bytes',
    help: 'Memory that may be reserved for VMs: the host’s with overcommit.',
    read: ({ capacity }) => capacity.mem_mib.limit * MIB,
  },
  {
    name: 'coppice_runner_available_memory_bytes',
    help: 'Memory that is available on the host.',
    read: ({ capacity }) => capacity.mem_available_mib * MIB,
  },
  {
    name: 'coppice_runner_reserved_vcpus',
    help: 'vCPUs that are reserved for VMs.',
    read: ({ capacity }) => capacity.vcpus.promised,
  },
  {
    name: 'coppice_runner_reservable_vcpus',
    help: 'vCPUs that may be reserved for VMs: the host’s cores with overcommit.',
    read: ({ capacity }) => capacity.vcpus.limit,
  },
  {
    name: 'coppice_runner_starts',
    help: 'VM starts that have a start slot (running) or wait for one (waiting).',
    label: 'state',
    read: ({ capacity }) => capacity.starts,
  },
  {
    name: 'coppice_runner_disk_free_bytes',
    help: 'Free space in the file system of the data directory.',
    read: ({ capacity }) => capacity.disk.free_mib * MIB,
  },
  {
    name: 'coppice_runner_disk_reserve_bytes',
    help: 'Free space below which no sandbox, image or template is made.',
    read: ({ capacity }) => capacity.disk.reserve_mib * MIB,
  },
  {
    name: 'coppice_runner_warm_vms',
    help: 'VMs that are kept warm.',
    read: (metrics) => metrics.warm_pool.size,
  },
  {
    name: 'coppice_runner_warm_vms_limit',
    help: 'Most VMs that are kept warm.',
    read: (metrics) => metrics.warm_pool.limit,
  },
  {
    name: 'coppice_runner_warm_pool_creates_total',
    help: 'Creates that got a warm VM (hit) or had to start their own (miss).',
    label: 'result',
    isCounter: true,
    read: ({ warm_pool: { hits: hit, misses: miss } }) => ({ hit, miss }),
  },
  {
    name: 'coppice_runner_disks',
    help: 'Persistent disks that the runner holds: of VMs (attached), or to be drained after their end (detaching).',
    label: 'state',
    read: ({ disks: { attached, detaching } }) => ({ attached, detaching }),
  },
  {
    name: 'coppice_runner_disks_waiting',
    help: 'Persistent disks whose data is not being stored, as the object store fails or is slow.',
    read: (metrics) => metrics.disks.waiting,
  },
  {
    name: 'coppice_runner_disks_dirty_bytes',
    help: 'Data of persistent disks on this host that is not in the object store.',
    read: (metrics) => metrics.disks.dirty_bytes,
  },
  {
    name: 'coppice_runner_cpu_seconds_total',
    help: 'CPU time of the runner process, without VMs.',
    isCounter: true,
    read: (metrics) => metrics.process.cpu_ms / 1000,
  },
  {
    name: 'coppice_runner_resident_memory_bytes',
    help: 'Resident memory of the runner process, without VMs.',
    read: (metrics) => metrics.process.resident_bytes,
  },
];

/** A runner of this control. */
export interface MeasuredRunner {
  id: string;
  /** Undefined if it did not answer. */
  metrics: RunnerMetrics | undefined;
  isCordoned: boolean;
  /** Since its last heartbeat; undefined before the first one. */
  heartbeatAgeMs: number | undefined;
}

/** The owner is the control that is scraped: each runner is in the scrape of one control. */
const RUNNER = 'runner';

export class RunnerGauges {
  readonly #up: Gauge;
  readonly #cordoned: Gauge;
  readonly #heartbeatAge: Gauge;
  readonly #build: Gauge;
  readonly #readings: { reading: Reading<RunnerMetrics>; metric: Gauge | Counter }[];

  constructor(registry: Registry) {
    const registers = [registry];
    const gauge = (name: string, help: string, labels: string[] = []): Gauge =>
      new Gauge({ name, help, labelNames: [RUNNER, ...labels], registers });
    this.#up = gauge(
      'coppice_runner_up',
      'Whether the runner answers: 1, or 0. Without an answer its measurements are absent.',
    );
    this.#cordoned = gauge(
      'coppice_runner_cordoned',
      'Whether new sandboxes are kept away from it: 1, or 0.',
    );
    this.#heartbeatAge = gauge('coppice_runner_heartbeat_age_seconds', 'Time since its last heartbeat.');
    this.#build = gauge(
      'coppice_runner_build_info',
      'Always 1. The labels are those of new VMs: machine, versions of its parts, and how it runs.',
      ['machine', 'qemu', 'kernel', 'agent', 'accelerator', 'confinement'],
    );
    this.#readings = READINGS.map((reading) => ({
      reading,
      metric: openMetric(reading, { registry, labels: [RUNNER] }),
    }));
  }

  /** Replaces all values: those of runners that have another owner now are gone. */
  set(runners: readonly MeasuredRunner[]): void {
    const own = [this.#up, this.#cordoned, this.#heartbeatAge, this.#build];
    for (const metric of [...own, ...this.#readings.map((each) => each.metric)]) metric.reset();
    for (const { id: runner, metrics, isCordoned, heartbeatAgeMs } of runners) {
      this.#up.set({ runner }, metrics === undefined ? 0 : 1);
      this.#cordoned.set({ runner }, isCordoned ? 1 : 0);
      if (heartbeatAgeMs !== undefined) this.#heartbeatAge.set({ runner }, heartbeatAgeMs / 1000);
      if (metrics === undefined) continue;
      const { versions, accelerator, confinement } = metrics;
      this.#build.set({ runner, ...versions, accelerator, confinement }, 1);
      for (const { reading, metric } of this.#readings) fillMetric(metric, reading, metrics, { runner });
    }
  }
}
