/** The resource limits of a VM's process. */
import type { MachineShape } from '../vm/shape.ts';
import { overheadMiB } from '../vm/shape.ts';

const MIB = 1024 * 1024;
/** Page cache of the disks, socket buffers and short peaks of QEMU: reaching the limit would kill the VM. */
const MEM_SLACK_MIB = 256;
/** Page tables take this fraction of the guest's memory. */
const PAGE_TABLE_DIVISOR = 64;
/** CPU of QEMU's own threads, in addition to the vCPUs. */
const IO_CPU_PERCENT = 25;
/** QEMU dies when it cannot create a thread, and its disks may use 64 at once. */
const MIN_TASKS = 256;

export interface UnitLimits {
  memBytes: number;
  /** In percent of one CPU. */
  cpuPercent: number;
  /** In vCPUs: the VM's share when CPU time is short. */
  weight: number;
  tasks: number;
}

export interface LimitOptions {
  shape: MachineShape;
  /** Size of the disk and RAM file on a tmpfs, whose pages count as the VM's memory; 0 if they are not on one. */
  tmpfsMiB: number;
}

export function buildUnitLimits({ shape, tmpfsMiB }: LimitOptions): UnitLimits {
  const { vcpus, memMiB, accelerator } = shape;
  const pageTablesMiB = Math.ceil(memMiB / PAGE_TABLE_DIVISOR);
  const limitMiB = memMiB + pageTablesMiB + overheadMiB(accelerator) + MEM_SLACK_MIB + tmpfsMiB;
  return {
    memBytes: limitMiB * MIB,
    cpuPercent: vcpus * 100 + IO_CPU_PERCENT,
    weight: vcpus,
    tasks: MIN_TASKS + vcpus,
  };
}
