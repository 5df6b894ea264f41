/**
 * The seam to the virtual machine monitor. QEMU is the only one written; tests of the driver stand in for it here.
 */
import type { Socket } from 'node:net';
import type { Machine } from '../machine/machine-store.ts';
import type { AskedCpu, Cpu } from './cpu.ts';
import type { DiskFiles } from './vm-files.ts';
import type { MachineShape } from './shape.ts';
import type { ProcessIdentity, ProcessUsage } from '../host/host-process.ts';

/** What a VM goes on from: memory and the state of devices, saved at one moment. Neither file ever changes. */
export interface SavedState {
  ramPath: string;
  statePath: string;
  /** Of a guest that may have been writing to its ports, unlike a template. */
  wasBusy: boolean;
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

/** Of a VM, on the host. */
export interface VmDirectories {
  sockets: string;
  overlays: string;
}

export type VmEnding = 'guest_shutdown' | 'guest_panic' | 'vmm_lost';

/** A VM that runs, whether this process started it or found it. */
export interface VmHandle {
  readonly identity: ProcessIdentity;
  readonly socketDirectory: string;
  /** Resolves once when the VM ends without having been asked to. */
  readonly ended: Promise<VmEnding>;
  usage(): ProcessUsage | undefined;
  /** What the model would be on this host, under the VM's accelerator. */
  expandCpu(asked: AskedCpu): Promise<Cpu>;
  /** Stopped by {@link pause}, or by QEMU because a disk of the host is full or fails. */
  readonly isPaused: boolean;
  pause(): Promise<void>;
  continue(): Promise<void>;
  /** Stops the guest for a moment, which is no pause: nobody but the caller starts it again. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** A connection to the agent's data port that is open since before the VM was loaded; for the first that asks. */
  takeDataSocket(): Socket | undefined;
  /**
   * Differs when memory has changed, though the guest stands still: QEMU notes there what it hands over of the guest's
   * output.
   */
  readHandedOver(): Promise<string>;
  /** Writes the state of the devices of a VM that stands still into `name` in its socket directory. */
  saveDevices(name: string): Promise<void>;
  /** Opens an overlay, which lies in the VM's directory of overlays, before it is needed. */
  openOverlay(number: number): Promise<void>;
  /** Makes the topmost overlay larger and tells the guest, which has to be running. */
  resizeOverlay(number: number, sizeBytes: number): Promise<void>;
  /** Puts an opened overlay on top; the one that was there is not written to any more. */
  putOnTop(number: number, below: number): Promise<void>;
  /** Closes an overlay that is not part of the disk. It may be open, open in part, or closed. */
  closeOverlay(number: number): Promise<void>;
  /** Copies what lies in overlays under the topmost into it; when done, they are not needed any more. */
  flatten(top: number): Promise<void>;
  /** Ends {@link flatten} early; the chain stays as it was. */
  stopFlattening(): Promise<void>;
  /** Numbers of the overlays that the disk is made of, ascending. */
  readChain(): Promise<number[]>;
  /** The last lines that the guest's kernel wrote; never shown to a caller, the guest writes what it likes. */
  consoleTail(): Promise<string>;
  /** Ends the VM whatever it does and waits until its process is gone. */
  kill(): Promise<void>;
  /** Lets go of the VM without ending it. */
  detach(): void;
}

export interface Vmm {
  /** Cold boot with RAM in the file, to make a template from. */
  boot(launch: VmLaunch, ramPath: string): Promise<VmHandle>;
  /** A stopped VM with the saved state and a private view of its RAM; with `ownsRam` its RAM is that very file. */
  restore(launch: VmLaunch, saved: SavedState, how?: { ownsRam: boolean }): Promise<VmHandle>;
  /** Takes over a VM that an earlier runner process started; undefined when it is no longer there. */
  adopt(identity: ProcessIdentity, directories: VmDirectories): Promise<VmHandle | undefined>;
}

/** The VMM ended while it was being started; the message holds the end of what it said. */
export class VmmStartError extends Error {
  constructor(messages: string, options?: ErrorOptions) {
    super(`QEMU did not start: ${messages.trim() || 'it said nothing'}`, options);
    this.name = 'VmmStartError';
  }
}
