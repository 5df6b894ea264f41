import { availableParallelism, totalmem } from 'node:os';
import type { Accelerators } from '../accelerator/accelerators.ts';
import type { RunnerConfig } from '../runner-config.ts';
import { overheadMiB } from '../vm/shape.ts';
import { Admission } from './admission.ts';
import { Capacity } from './capacity.ts';
import type { DiskGuard } from './disk-guard.ts';
import { Turns } from './turns.ts';

const MIB = 1024 * 1024;
/** More vCPUs than cores are allowed: sandboxes are idle most of the time. */
const MIN_MAX_VCPUS = 8;
/** A start also waits for the disk and for timers: one more start than cores keeps the cores busy. */
const STARTS_BESIDES_CORES = 1;
const MAX_WAITING_STARTS = 256;
const MAX_WAIT_FOR_TURN_MS = 60_000;

/** Builds the capacity of this machine from its hardware and the settings. */
export function buildCapacity(
  config: RunnerConfig,
  accelerators: Pick<Accelerators, 'current'>,
  disk: DiskGuard,
): Capacity {
  const cores = availableParallelism();
  const admission = new Admission({
    hostMemMiB: hostMemMiB(),
    cores,
    memOvercommit: config.memOvercommit,
    cpuOvercommit: config.cpuOvercommit,
    overheadMiB: (accelerator = accelerators.current.accelerator) => overheadMiB(accelerator),
    availableMiB,
  });
  return new Capacity({
    admission,
    turns: new Turns({
      maxRunning: cores + STARTS_BESIDES_CORES,
      maxWaiting: MAX_WAITING_STARTS,
      maxWaitMs: MAX_WAIT_FOR_TURN_MS,
    }),
    disk,
    maxVcpus: Math.max(MIN_MAX_VCPUS, cores),
    availableMiB,
  });
}

/** Returns the memory limit of the container, or the memory of the machine if that is smaller. */
function hostMemMiB(): number {
  const constrained = process.constrainedMemory();
  const total = totalmem();
  return Math.floor((constrained > 0 ? Math.min(constrained, total) : total) / MIB);
}

function availableMiB(): number {
  return process.availableMemory() / MIB;
}
