/** Passes on the measurements of the runner, which are read at each scrape. While there are none, neither is a value. */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { RunnerMetrics } from '../../lib/protocol/metrics-protocol.ts';

const MIB = 2 ** 20;

interface Reading {
  name: string;
  help: string;
  label?: string;
  /** Whether the value only grows, until the runner restarts. */
  isCounter?: boolean;
  read: (metrics: RunnerMetrics) => number | Record<string, number>;
}

const READINGS: readonly Reading[] = [
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

export class RunnerGauges {
  readonly #up: Gauge;
  readonly #build: Gauge;
  readonly #readings: { reading: Reading; metric: Gauge | Counter }[];

  constructor(registry: Registry) {
    const registers = [registry];
    this.#up = new Gauge({
      name: 'coppice_runner_up',
      help: 'Whether the runner answers: 1, or 0. Without an answer the other metrics of the runner are absent.',
      registers,
    });
    this.#build = new Gauge({
      name: 'coppice_runner_build_info',
      help: 'Always 1. The labels are those of new VMs: machine, versions of its parts, and how it runs.',
      labelNames: ['machine', 'qemu', 'kernel', 'agent', 'accelerator', 'confinement'],
      registers,
    });
    this.#readings = READINGS.map((reading) => {
      const { name, help, label, isCounter = false } = reading;
      const options = { name, help, labelNames: label === undefined ? [] : [label], registers };
      return { reading, metric: isCounter ? new Counter(options) : new Gauge(options) };
    });
  }

  /** Replaces all values. `undefined`: the runner did not answer. */
  set(metrics: RunnerMetrics | undefined): void {
    this.#up.set(metrics === undefined ? 0 : 1);
    this.#build.reset();
    if (metrics !== undefined) {
      const { versions, accelerator, confinement } = metrics;
      this.#build.set({ ...versions, accelerator, confinement }, 1);
    }
    for (const { reading, metric } of this.#readings) {
      metric.reset();
      // A reset metric without labels has the value 0.
      if (metrics === undefined) metric.remove({});
      else fill(metric, reading, metrics);
    }
  }
}

function fill(metric: Gauge | Counter, { label, read }: Reading, metrics: RunnerMetrics): void {
  const value = read(metrics);
  if (typeof value === 'number') metric.inc(value);
  else if (label !== undefined)
    for (const [of, count] of Object.entries(value)) metric.inc({ [label]: of }, count);
}
