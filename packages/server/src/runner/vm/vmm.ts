/** The interface to the virtual machine monitor. QEMU is the only implementation; driver tests use stand-ins. */
import type { Socket } from 'node:net';
import type { Machine } from '../machine/machine-store.ts';
import type { AskedCpu, Cpu } from './cpu.ts';
import type { DiskFiles } from './vm-files.ts';
import type { MachineShape } from './shape.ts';
import type { ProcessIdentity, ProcessUsage } from '../host/host-process.ts';

/** The state that a VM continues from: memory and device state, saved at one moment. Neither file ever changes. */
export interface SavedState {
  ramPath: string;
  statePath: string;
  /** Whether the guest may have been writing to its ports, unlike a template. */
  wasBusy: boolean;
}

export interface VmLaunch {
  id: string;
  /** The machine to start with; saved state loads only in the machine that it was saved with. */
  machine: Machine;
  shape: MachineShape;
  /** Unprivileged uid (and gid) of this VM alone. */
  uid: number;
  /** Directory of this VM's sockets and messages. The caller creates it, owned by `uid`. */
  socketDirectory: string;
  disks: DiskFiles | undefined;
  /** Name of the VM's TAP, which nothing else holds. Undefined: no network device. */
  tap: string | undefined;
  /** The `cgroup.procs` files of the control groups that the process enters; empty without control groups. */
  cgroupProcs: readonly string[];
}

/** Directories of a VM on the host. */
export interface VmDirectories {
  sockets: string;
  overlays: string;
}

export type VmEnding = 'guest_shutdown' | 'guest_panic' | 'vmm_lost';

/** A running VM, started or adopted by this process. */
export interface VmHandle {
  readonly identity: ProcessIdentity;
  readonly socketDirectory: string;
  /** Resolves when the VM ends by itself. */
  readonly ended: Promise<VmEnding>;
  usage(): ProcessUsage | undefined;
  /** Returns the CPU that the model means on this host, under the VM's accelerator. */
  expandCpu(asked: AskedCpu): Promise<Cpu>;
  /** Whether the VM is stopped by {@link pause}, or by QEMU because a host disk is full or fails. */
  readonly isPaused: boolean;
  pause(): Promise<void>;
  continue(): Promise<void>;
  /** Stops the guest for a moment, which is not a pause: only the caller starts it again. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Returns a connection to the agent's data port from before the VM was loaded. Only the first call gets it. */
  takeDataSocket(): Socket | undefined;
  /**
   * Returns a value that changes when the memory of a stopped guest changes: QEMU records there which of the guest's
   * output it has handed over.
   */
  readHandedOver(): Promise<string>;
  /** Writes the device state of a stopped VM to `name` in its socket directory. */
  saveDevices(name: string): Promise<void>;
  /** Opens an overlay of the VM's overlay directory before it is needed. */
  openOverlay(number: number): Promise<void>;
  /** Grows the top overlay and notifies the guest, which must be running. */
  resizeOverlay(number: number, sizeBytes: number): Promise<void>;
  /** Puts an open overlay on top; the former top is not written any more. */
  putOnTop(number: number, below: number): Promise<void>;
  /** Closes an overlay that is not part of the disk. It may be open, partly open, or closed. */
  closeOverlay(number: number): Promise<void>;
  /** Copies the lower overlays into the top one; when done, they are not needed any more. */
  flatten(top: number): Promise<void>;
  /** Cancels {@link flatten}; the chain stays as it was. */
  stopFlattening(): Promise<void>;
  /** Returns the numbers of the overlays that form the disk, ascending. */
  readChain(): Promise<number[]>;
  /** Returns the end of the guest's console. Never shown to a caller: the guest can write anything there. */
  consoleTail(): Promise<string>;
  /** Kills the VM and waits until its process is gone. */
  kill(): Promise<void>;
  /** Releases the VM without ending it. */
  detach(): void;
}

export interface Vmm {
  /** Boots a VM with RAM in the file, to make a template. */
  boot(launch: VmLaunch, ramPath: string): Promise<VmHandle>;
  /** Starts a stopped VM with the saved state and a private view of its RAM, or with `ownsRam` the RAM file itself. */
  restore(launch: VmLaunch, saved: SavedState, how?: { ownsRam: boolean }): Promise<VmHandle>;
  /** Adopts a VM that an earlier runner process started. Returns undefined if it is gone. */
  adopt(identity: ProcessIdentity, directories: VmDirectories): Promise<VmHandle | undefined>;
}

/** Thrown when the VMM ends during its start. The message holds the end of its output. */
export class VmmStartError extends Error {
  constructor(messages: string, options?: ErrorOptions) {
    super(`QEMU did not start: ${messages.trim() || 'it said nothing'}`, options);
    this.name = 'VmmStartError';
  }
}
