/** What VMs are made of, whichever VMM runs them: saved state loads only where all of it is the same. */
import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';
import type { Cpu } from './cpu.ts';

/** Raise when the device model or its order changes: templates of another version are not used, captures refused. */
export const MACHINE_VERSION = 4;

/** The same in every guest: saved state carries it, and no two guests share a link. */
export const GUEST_MAC = '06:00:00:00:00:01';

/** TCG's translation cache, MiB; its default may grow to 1 GiB for each VM. */
export const TCG_CACHE_MIB = 128;
/** QEMU itself: program, devices, thread stacks. */
const QEMU_MEM_MIB = 64;

/** Memory of a VM's process besides that of the guest. */
export function overheadMiB(accelerator: Accelerator): number {
  return QEMU_MEM_MIB + (accelerator === 'tcg' ? TCG_CACHE_MIB : 0);
}

export interface MachineShape {
  accelerator: Accelerator;
  /** Absent for VMs from before it was recorded. */
  cpu?: Cpu | undefined;
  vcpus: number;
  memMiB: number;
}

/** What a template is made for: the scratch disk is part of it, as it is mounted when the state is saved. */
export interface TemplateShape extends MachineShape {
  diskMiB: number;
}
