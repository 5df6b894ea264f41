/**
 * Measurements of the runner, as control reads them; see docs/reference/runner-protocol.md. All are of the host. Their
 * size does not grow with the number of VMs.
 */
import { METRICS_KEPT_S, METRICS_SAMPLE_S } from '@coppice/contract';
import { z } from 'zod';
import { Accelerator, CapacityStatus, Confinement } from './runner-protocol.ts';

const Count = z.int().nonnegative();
const Version = z.string().max(128);

/** `saving`: the guest stands still for a capture. */
export const VmPhase = z.enum(['creating', 'running', 'saving', 'ending', 'ended']);
export type VmPhase = z.infer<typeof VmPhase>;

/** Answer of `GET /metrics`. */
export const RunnerMetrics = z.object({
  /** Of the machine of new VMs. */
  versions: z.object({ machine: Version, qemu: Version, kernel: Version, agent: Version }),
  accelerator: Accelerator,
  confinement: Confinement,
  /** VMs of sandboxes; a phase without VMs may be absent. */
  vms: z.partialRecord(VmPhase, Count),
  /** Number of these VMs that are paused until a host disk has space, or the object store has taken data. */
  paused_vms: Count,
  capacity: CapacityStatus,
  /** Warm VMs, and the creates since this process started that got one or had to start their own. */
  warm_pool: z.object({ size: Count, limit: Count, hits: Count, misses: Count }),
  /** Persistent disks that this runner holds. */
  disks: z.object({
    attached: Count,
    /** Without a VM, and not yet drained. */
    detaching: Count,
    /** Number of these disks whose draining does not proceed. */
    waiting: Count,
    /** Bytes on this host that are not in the object store. */
    dirty_bytes: Count,
  }),
  process: z.object({ cpu_ms: Count, resident_bytes: Count }),
});
export type RunnerMetrics = z.infer<typeof RunnerMetrics>;

const MAX_POINTS = METRICS_KEPT_S / METRICS_SAMPLE_S;

/** Query of `GET /vms/{id}/metrics`. */
export const VmMetricsQuery = z.object({
  /** Points that end later than this, in milliseconds since 1970. */
  since_ms: z.coerce.number().int().nonnegative().default(0),
  step_s: z.coerce
    .number()
    .int()
    .min(METRICS_SAMPLE_S)
    .max(METRICS_KEPT_S)
    .multipleOf(METRICS_SAMPLE_S)
    .default(METRICS_SAMPLE_S),
});
export type VmMetricsQuery = z.infer<typeof VmMetricsQuery>;

const Share = z.number().nonnegative();

/** Bytes and packets at the VM's TAP, named from the guest's side. */
const Traffic = z.object({
  received_bytes: Count,
  sent_bytes: Count,
  received_packets: Count,
  sent_packets: Count,
});

/** Usage of a VM since it was started. */
export const VmNow = z.object({
  at_ms: Count,
  cpu_ms: Count,
  /** CPU time of the last seconds, as a part of that of all vCPUs. Null in the first seconds. */
  cpu_utilization: Share.nullable(),
  mem_bytes: Count,
  mem_mib: Count,
  disk_bytes: Count,
  disk_mib: Count,
  /** Of all block devices. */
  read_bytes: Count,
  written_bytes: Count,
  /** Null without a persistent disk. */
  workspace: z.object({ size_bytes: Count, dirty_bytes: Count }).nullable(),
  /** Null without a network device. */
  network: Traffic.nullable(),
});
export type VmNow = z.infer<typeof VmNow>;

/** Use of a VM in some seconds, and what it held at their end. */
export const VmPoint = z.object({
  /** The end of these seconds. */
  at_ms: Count,
  duration_ms: Count,
  cpu_utilization: Share,
  mem_bytes: Count,
  disk_bytes: Count,
  read_bytes: Count,
  written_bytes: Count,
  ...Traffic.shape,
});
export type VmPoint = z.infer<typeof VmPoint>;

/** Answer of `GET /vms/{id}/metrics`. */
export const VmMetrics = z.object({
  /** Null if the VM does not run. */
  now: VmNow.nullable(),
  series: z.array(VmPoint).max(MAX_POINTS),
});
export type VmMetrics = z.infer<typeof VmMetrics>;

/** Answer of the agent's `GET /metrics`. The guest may lie about all of it. */
export const GuestMetrics = z.object({
  mem_total_bytes: Count,
  mem_available_bytes: Count,
  disk_total_bytes: Count,
  disk_used_bytes: Count,
  load1: z.number().min(0).max(1e9),
  processes: Count,
});
export type GuestMetrics = z.infer<typeof GuestMetrics>;
