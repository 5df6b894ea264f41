/** Opens the VMM with the machines that it starts VMs from. No other file of the product knows that it is QEMU. */
import type { Logger } from 'pino';
import { Jail } from './confinement/jail.ts';
import { MachineStore, type MachineStoreOptions } from './machine/machine-store.ts';
import { Qemu } from './qemu/qemu.ts';
import type { RunnerTools } from './runner-config.ts';
import type { Vmm } from './vm/vmm.ts';

export interface VmmOptions extends Pick<MachineStoreOptions, 'formerDirectory'> {
  /** Holds the machines. */
  machinesDirectory: string;
  tools: Pick<RunnerTools, 'jail' | 'qemu' | 'kernel' | 'initramfs'>;
  /** User id for the probe of the confinement. */
  uid: number;
  /** Rate of the host's time stamp counter. */
  tscKhz: number;
}

export interface OpenedVmm {
  vmm: Vmm;
  machines: MachineStore;
  jail: Jail;
}

export async function openVmm(options: VmmOptions, log: Logger): Promise<OpenedVmm> {
  const { machinesDirectory: directory, tools, uid, tscKhz, ...rest } = options;
  const jail = await Jail.open({ launcherPath: tools.jail, uid, log });
  const confinement = jail.confinement.kind;
  const machines = await MachineStore.open({ ...rest, directory, tools, confinement, log });
  return { vmm: new Qemu({ jail, machines, tscKhz }, log), machines, jail };
}
