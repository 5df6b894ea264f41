import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { DeadlineError, stretched, untilAborted, withDeadline } from '../../lib/waiting/deadline.ts';
import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';
import { AgentSession } from '../agent-client/agent-session.ts';
import type { Machine } from '../machine/machine-store.ts';
import { makeBootFiles } from '../vm/boot-files.ts';
import type { Cpu } from '../vm/cpu.ts';
import { isAlive } from '../host/host-process.ts';
import type { MachineShape } from '../vm/shape.ts';
import type { VmEnding, VmHandle, Vmm } from '../vm/vmm.ts';

const MEM_MIB = 256;

/** A VM that shows whether a kernel boots: small, without disks or a network. */
export interface BootPlace {
  vmm: Vmm;
  machine: Machine;
  /** RAM file and sockets; removed afterwards. */
  directory: string;
  uid: number;
}

export interface VmOptions extends BootPlace {
  accelerator: Accelerator;
  cpu?: Cpu;
  /** Files by which its process enters its control groups. */
  cgroupProcs?: readonly string[];
}

export interface BootOptions extends VmOptions {
  timeoutMs: number;
  /** Ends the attempt, and with it the VM. */
  signal?: AbortSignal;
}

export function bootShape(accelerator: Accelerator, cpu?: Cpu): MachineShape {
  return { accelerator, cpu, vcpus: 1, memMiB: MEM_MIB };
}

const ENDINGS: Readonly<Record<VmEnding, string>> = {
  guest_panic: 'the guest kernel panicked',
  guest_shutdown: 'the guest kernel reset its machine',
  vmm_lost: 'QEMU ended',
};

/** The VM ended before its guest answered. */
export class BootEndedError extends Error {
  constructor(ending: VmEnding) {
    super(`${ENDINGS[ending]} while it booted`);
    this.name = 'BootEndedError';
  }
}

/** Boots the guest kernel until the agent answers, and ends it. */
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

/** Starts the VM for `use`, and ends it. */
export async function withVm<T>(options: VmOptions, use: (vm: VmHandle) => Promise<T>): Promise<T> {
  const { directory, uid, vmm, machine, accelerator, cpu, cgroupProcs = [] } = options;
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
      openTap: undefined,
      cgroupProcs,
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

async function ping({ socketDirectory, identity }: VmHandle, timeoutMs: number): Promise<void> {
  const session = await AgentSession.open({
    socketDirectory,
    generation: 1,
    timeoutMs,
    assertAlive: () => {
      if (!isAlive(identity)) throw new BootEndedError('vmm_lost');
    },
  });
  await session.call('GET', '/ping');
  session.close();
}
