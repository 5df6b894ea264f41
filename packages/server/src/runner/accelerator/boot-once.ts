import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { DeadlineError, stretched, untilAborted, withDeadline } from '../../lib/waiting/deadline.ts';
import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';
import { AgentSession } from '../agent-client/agent-session.ts';
import { makeBootFiles } from '../vm/boot-files.ts';
import type { Cpu } from '../vm/cpu.ts';
import type { MachineShape } from '../vm/shape.ts';
import { VmGoneError, type VmEnding, type VmHandle, type Vmm } from '../vm/vmm.ts';

const MEM_MIB = 256;

/** The parts of a VM that only shows whether a kernel boots: small, without disks or a network. */
export interface BootPlace {
  vmm: Vmm;
  /** Key of the machine. */
  machine: string;
  /** Holds the RAM file and the sockets. Removed after the boot. */
  directory: string;
  uid: number;
}

export interface VmOptions extends BootPlace {
  accelerator: Accelerator;
  cpu?: Cpu;
  /** Directories of the control groups that the VM's process enters. */
  cgroups?: readonly string[];
}

export interface BootOptions extends VmOptions {
  timeoutMs: number;
  /** Aborts the attempt and ends its VM. */
  signal?: AbortSignal;
}

export function bootShape(accelerator: Accelerator, cpu?: Cpu): MachineShape {
  return { accelerator, cpu, vcpus: 1, memMiB: MEM_MIB };
}

const ENDINGS: Readonly<Record<VmEnding, string>> = {
  guest_panic: 'the guest kernel panicked',
  guest_shutdown: 'the guest kernel reset its machine',
  vmm_lost: 'the VMM ended',
};

/** Thrown when the VM ends before its guest answers. */
export class BootEndedError extends Error {
  constructor(ending: VmEnding) {
    super(`${ENDINGS[ending]} while it booted`);
    this.name = 'BootEndedError';
  }
}

/**
 * Boots the guest kernel, waits until the agent answers, and ends the VM. Throws {@link BootEndedError} if the VM ends
 * first and DeadlineError after `timeoutMs`.
 */
export async function bootOnce(options: BootOptions): Promise<void> {
  const { accelerator, signal, timeoutMs } = options;
  signal?.throwIfAborted();
  const step = `booting a kernel with ${accelerator.toUpperCase()}`;
  const endsAtMs = performance.now() + stretched(timeoutMs);
  await withVm(options, async (vm) => {
    const leftMs = Math.ceil((endsAtMs - performance.now()) / stretched(1));
    if (leftMs <= 0) throw new DeadlineError(step, timeoutMs);
    const answered = Promise.race([ping(vm, leftMs), failWhenEnded(vm)]);
    await withDeadline(step, leftMs, untilAborted(signal, answered));
  });
}

/** Starts the VM, calls `use`, then ends the VM and removes its directory. */
export async function withVm<T>(options: VmOptions, use: (vm: VmHandle) => Promise<T>): Promise<T> {
  const { directory, uid, vmm, machine, accelerator, cpu, cgroups = [] } = options;
  const ramPath = join(directory, 'ram');
  try {
    makeBootFiles({ socketDirectory: directory, ramPath, memMiB: MEM_MIB, uid });
    const launch = {
      id: 'probe',
      machine,
      shape: bootShape(accelerator, cpu),
      uid,
      socketDirectory: directory,
      disks: undefined,
      workspace: undefined,
      tap: undefined,
      cgroups,
    };
    const vm = await vmm.boot(launch, ramPath);
    try {
      return await use(vm);
    } finally {
      await vm.kill();
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function failWhenEnded(vm: VmHandle): Promise<never> {
  throw new BootEndedError(await vm.ended);
}

async function ping(vm: VmHandle, timeoutMs: number): Promise<void> {
  const session = await AgentSession.open({ vm, generation: 1, timeoutMs }).catch((error: unknown) => {
    throw error instanceof VmGoneError ? new BootEndedError('vmm_lost') : error;
  });
  await session.call('GET', '/ping');
  session.close();
}
