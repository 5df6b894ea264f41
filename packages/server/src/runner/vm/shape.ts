/** The properties of a VM, independent of the VMM. Saved state loads only if all of them are the same. */
import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';
import type { Cpu } from './cpu.ts';

/** Raise when the device model or its order changes. Templates of other versions are not used; captures are refused. */
export const MACHINE_VERSION = 5;

/** The same in every guest: saved state carries it, and no two guests share a link. */
export const GUEST_MAC = '06:00:00:00:00:01';

/** TCG's translation cache, MiB; its default may grow to 1 GiB for each VM. */
export const TCG_CACHE_MIB = 128;
/** The VMM itself: program, devices, thread stacks. */
const VMM_MEM_MIB = 64;

/** Memory of a VM's process in addition to the guest's, MiB. */
export function overheadMiB(accelerator: Accelerator): number {
  return VMM_MEM_MIB + (accelerator === 'tcg' ? TCG_CACHE_MIB : 0);
}

export interface MachineShape {
  accelerator: Accelerator;
  /** Absent for VMs from before the CPU was recorded. */
  cpu?: Cpu | undefined;
  vcpus: number;
  memMiB: number;
}

/** The shape of a template. It includes the scratch disk, which is mounted when the state is saved. */
export interface TemplateShape extends MachineShape {
  diskMiB: number;
}
