/**
 * The seam to the virtual machine monitor. QEMU is the only one written; tests of the driver stand in for it here.
 */
import type { Machine } from '../machine/machine-store.ts';
import type { DiskFiles, MachineShape } from './qemu-arguments.ts';
import type { ProcessIdentity, ProcessUsage } from './host-process.ts';

/** A saved VM. All three belong together: RAM holds the file system's view of the disk. */
export interface TemplateFiles {
  ramPath: string;
  statePath: string;
  /** qcow2 to copy for each VM, over the base of its size. */
  scratchPath: string;
}

export interface VmLaunch {
  id: string;
  /** What it is started with; saved state loads only in the one that it was saved with. */
  machine: Machine;
  shape: MachineShape;
  /** Unprivileged uid (and gid) of this VM alone. */
  uid: number;
  /** Sockets and messages of this VM; made by the caller, owned by `uid`. */
  socketDirectory: string;
  disks: DiskFiles | undefined;
  /** Opens the VM's TAP; the descriptor is closed here once QEMU has it. Absent: no network device. */
  openTap: (() => number) | undefined;
  /** Files by which the process enters its control groups; none where there are no groups. */
  cgroupProcs: readonly string[];
}

export type VmEnding = 'guest_shutdown' | 'guest_panic' | 'vmm_lost';

/** A VM that runs, whether this process started it or found it. */
export interface VmHandle {
  readonly identity: ProcessIdentity;
  readonly socketDirectory: string;
  /** Resolves once when the VM ends without having been asked to. */
  readonly ended: Promise<VmEnding>;
  usage(): ProcessUsage | undefined;
  /** Stopped by {@link pause}, or by QEMU because a disk of the host is full or fails. */
  readonly isPaused: boolean;
  pause(): Promise<void>;
  continue(): Promise<void>;
  /** Ends the VM whatever it does and waits until its process is gone. */
  kill(): Promise<void>;
  /** Lets go of the VM without ending it. */
  detach(): void;
}

export interface Vmm {
  /** Cold boot with RAM in the file, to make a template from. */
  boot(
    launch: VmLaunch,
    ramPath: string,
  ): Promise<VmHandle & { saveTemplate(statePath: string): Promise<void> }>;
  /** A stopped VM with the template's state and a private view of its RAM. */
  restore(launch: VmLaunch, template: Pick<TemplateFiles, 'ramPath' | 'statePath'>): Promise<VmHandle>;
  /** Takes over a VM that an earlier runner process started; undefined when it is no longer there. */
  adopt(identity: ProcessIdentity, socketDirectory: string): Promise<VmHandle | undefined>;
}
