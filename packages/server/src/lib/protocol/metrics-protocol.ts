/**
 * Measurements of the runner, as control reads them; see docs/reference/runner-protocol.md. All are of the host. Their
 * size does not grow with the number of VMs.
 */
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
