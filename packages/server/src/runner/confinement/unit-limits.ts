/** What a VM's process may use at most, and how that is written in each version of control groups. */
import type { MachineShape } from '../vm/shape.ts';
import { overheadMiB } from '../vm/shape.ts';
import type { Controller } from './hierarchies.ts';

const MIB = 1024 * 1024;
/** Page cache of the disks, socket buffers, what QEMU takes for a moment: a limit that is met would kill the VM. */
const MEM_SLACK_MIB = 256;
/** Page tables of the guest's memory, as a part of it. */
const PAGE_TABLE_DIVISOR = 64;
/** For QEMU's own threads, besides the vCPUs. */
const IO_CPU_PERCENT = 25;
/** QEMU dies when a thread cannot be made, and its disks may use 64 at once. */
const MIN_TASKS = 256;
const QUOTA_PERIOD_US = 100_000;

export interface UnitLimits {
  memBytes: number;
  /** Of one CPU. */
  cpuPercent: number;
  /** In vCPUs: what the VM gets beside others when there is not enough for all. */
  weight: number;
  tasks: number;
}

export interface LimitOptions {
  shape: MachineShape;
  /** Disk and RAM file are on a tmpfs, whose pages count as the VM's memory: their size. */
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

export interface LimitFile {
  controller: Controller;
  file: string;
  value: string;
  /** A kernel may be built without it. */
  isOptional: boolean;
}

export function buildLimitFiles(version: 1 | 2, limits: UnitLimits): LimitFile[] {
  const quotaUs = (limits.cpuPercent * QUOTA_PERIOD_US) / 100;
  const required = (controller: Controller, file: string, value: number | string): LimitFile => ({
    controller,
    file,
    value: String(value),
    isOptional: false,
  });
  const optional = (controller: Controller, file: string, value: number | string): LimitFile => ({
    ...required(controller, file, value),
    isOptional: true,
  });
  if (version === 2) {
    return [
      required('memory', 'memory.max', limits.memBytes),
      required('cpu', 'cpu.weight', Math.min(10_000, limits.weight * 100)),
      optional('cpu', 'cpu.max', `${quotaUs} ${QUOTA_PERIOD_US}`),
      required('pids', 'pids.max', limits.tasks),
    ];
  }
  return [
    required('memory', 'memory.limit_in_bytes', limits.memBytes),
    required('cpu', 'cpu.shares', Math.min(262_144, limits.weight * 1024)),
    optional('cpu', 'cpu.cfs_period_us', QUOTA_PERIOD_US),
    optional('cpu', 'cpu.cfs_quota_us', quotaUs),
    required('pids', 'pids.max', limits.tasks),
  ];
}
