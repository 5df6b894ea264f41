import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { DeadlineError, untilAborted, withDeadline } from '../../lib/deadline.ts';
import type { Accelerator } from '../../lib/runner-protocol.ts';
import { AgentSession } from '../agent-client/agent-session.ts';
import type { Machine } from '../machine/machine-store.ts';
import { makeBootFiles } from '../vmm/boot-files.ts';
import { isAlive } from '../vmm/host-process.ts';
import type { MachineShape } from '../vmm/qemu-arguments.ts';
import type { VmEnding, VmHandle, Vmm } from '../vmm/vmm.ts';

const MEM_MIB = 256;

/** A VM that shows whether a kernel boots: small, without disks or a network. */
export interface BootPlace {
  vmm: Vmm;
  machine: Machine;
  /** RAM file and sockets; removed afterwards. */
  directory: string;
  uid: number;
}

export interface BootOptions extends BootPlace {
  accelerator: Accelerator;
  timeoutMs: number;
  /** Ends the attempt, and with it the VM. */
  signal?: AbortSignal;
  /** Files by which its process enters its control groups. */
  cgroupProcs?: readonly string[];
}

export function bootShape(accelerator: Accelerator): MachineShape {
  return { accelerator, vcpus: 1, memMiB: MEM_MIB };
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
  const { directory, uid, vmm, machine, accelerator, signal, cgroupProcs = [] } = options;
  signal?.throwIfAborted();
  const ramPath = join(directory, 'ram');
  try {
    makeBootFiles({ socketDirectory: directory, ramPath, memMiB: MEM_MIB, uid });
    const launch = {
      id: 'probe',
      machine,
      shape: bootShape(accelerator),
      uid,
      socketDirectory: directory,
      disks: undefined,
      openTap: undefined,
      cgroupProcs,
    };
    const step = `booting a kernel with ${accelerator.toUpperCase()}`;
    const endsAtMs = performance.now() + options.timeoutMs;
    const vm = await vmm.boot(launch, ramPath);
    try {
      const leftMs = Math.ceil(endsAtMs - performance.now());
      if (leftMs <= 0) throw new DeadlineError(step, options.timeoutMs);
      const answered = Promise.race([ping(vm, leftMs), failWhenEnded(vm)]);
      await withDeadline(step, leftMs, untilAborted(signal, answered));
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
