/**
 * The interface to the virtual machine monitor (VMM): what the runner needs from any. One implementation lies behind it
 * (`qemu/`), which only `open-vmm.ts` knows; tests of the driver use stand-ins.
 *
 *   boot, restore ─► a stopped or running VM ─► pause, save, change its disk ─► kill
 *   adopt ─► a VM of an earlier runner process, which has outlived it
 *
 * The VMM is one process for each VM. It maps the RAM file of a restored VM privately, so the kernel tells which pages
 * the VM has changed (`capture/`). It is trusted no more than its guest.
 */
import type { Duplex } from 'node:stream';
import { AppError } from '@coppice/contract';
import type { CpuSetting } from '../../lib/cpu-setting.ts';
import type { ProcessIdentity, ProcessUsage } from '../host/host-process.ts';
import type { Cpu } from './cpu.ts';
import type { DiskFiles } from './vm-files.ts';
import type { MachineShape } from './shape.ts';
import type { WorkspaceDevice, WorkspaceDirectories, WorkspaceFiles } from './workspace-device.ts';

/** The state that a VM continues from: memory and device state, saved at one moment. Neither file ever changes. */
export interface SavedState {
  ramPath: string;
  statePath: string;
  /** Whether the guest may have been writing to its ports, unlike a template. */
  wasBusy: boolean;
}

export interface VmLaunch {
  id: string;
  /** Key of the machine to start with; saved state loads only in the machine that it was saved with. */
  machine: string;
  shape: MachineShape;
  /** Unprivileged uid (and gid) of this VM alone. */
  uid: number;
  /** Directory of the VMM's own files, such as sockets. The caller creates it, owned by `uid`. */
  socketDirectory: string;
  disks: DiskFiles | undefined;
  /** Undefined for a VM without disks. */
  workspace: WorkspaceFiles | undefined;
  /** Name of the VM's TAP, which nothing else holds. Undefined: no network device. */
  tap: string | undefined;
  /** Directories of the control groups that the process enters before all else; empty without control groups. */
  cgroups: readonly string[];
}

/** Directories of a VM on the host. */
export interface VmDirectories {
  sockets: string;
  overlays: string;
  workspace: WorkspaceDirectories;
}

export type VmEnding = 'guest_shutdown' | 'guest_panic' | 'vmm_lost';

/** The agent's ports (docs/reference/agent-protocol.md). */
export type AgentPort = 'ctl' | 'data';

/**
 * The scratch disk of a VM that has disks: a stack of overlays, each a file of the VM's overlay directory. The caller
 * creates and removes the files, the VMM opens and closes them.
 */
export interface VmDisk {
  /** Returns the numbers of the overlays that form the disk, ascending. */
  listOverlays(): Promise<number[]>;
  /** Opens an overlay while the guest runs, so that {@link push} takes little time. It is not part of the disk yet. */
  open(overlay: number): Promise<void>;
  /** Puts an open overlay on top of a stopped VM's disk; the former top is not written any more. */
  push(overlay: number): Promise<void>;
  /** Closes an overlay that is not part of the disk. It may be open, partly open, or closed. */
  close(overlay: number): Promise<void>;
  /** Copies the lower overlays into the top one while the guest runs. When done, they are not part of the disk. */
  flatten(): Promise<void>;
  /** Cancels {@link flatten}, of an earlier process too; the disk stays as it was. */
  stopFlattening(): Promise<void>;
  /** Grows the disk and notifies the guest, which must be running. */
  grow(sizeBytes: number): Promise<void>;
}

/** Bytes that a guest has read from and written to all its disks since its VMM started. */
export interface BlockTraffic {
  readBytes: number;
  writtenBytes: number;
}

/** A running VM, started or adopted by this process. */
export interface VmHandle {
  readonly identity: ProcessIdentity;
  readonly disk: VmDisk;
  /** The device of the persistent disk. */
  readonly workspace: WorkspaceDevice;
  /** Resolves when the VM ends by itself. */
  readonly ended: Promise<VmEnding>;
  usage(): ProcessUsage | undefined;
  /** Throws {@link VmmError} or DeadlineError without an answer of the VMM. */
  readBlockTraffic(): Promise<BlockTraffic>;
  /** Returns the CPU that the setting means on this host, under the VM's accelerator. */
  resolveCpu(setting: CpuSetting): Promise<Cpu>;
  /** Whether the VM is stopped by {@link pause}, or by the VMM because a host disk is full or fails. */
  readonly isPaused: boolean;
  pause(): Promise<void>;
  /** Continues a paused VM; a request that failed because the disk was full is retried. */
  continue(): Promise<void>;
  /** Stops the guest for a moment, which is not a pause: only the caller starts it again. */
  stop(): Promise<void>;
  /** Starts the guest, also one that an earlier process had stopped. */
  start(): Promise<void>;
  /**
   * Connects to a port of the agent, which serves one connection at a time. Bytes of earlier sessions may arrive on it.
   * Throws {@link VmGoneError} if the VM has ended, DeadlineError after `timeoutMs`.
   */
  connectAgent(port: AgentPort, timeoutMs: number): Promise<Duplex>;
  /**
   * Saves the device state of a stopped VM as a new file `statePath`, out of the VMM's reach. `copyMemory` copies the
   * pages that the VM has changed. It is called again, after the devices are saved again, until both are of one moment:
   * the devices of a stopped VM may still change its memory. Without `copyMemory` the RAM file is the VM's own. Throws
   * `unavailable` if the devices do not come to rest.
   */
  saveState(statePath: string, copyMemory?: () => Promise<void>): Promise<void>;
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

/** Thrown when the VMM refuses an operation, or ends during it. */
export class VmmError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'VmmError';
  }
}

/** Thrown when the VMM ends during its start. The message holds the end of its output. */
export class VmmStartError extends VmmError {
  constructor(messages: string, options?: ErrorOptions) {
    super(`the VMM did not start: ${messages.trim() || 'it said nothing'}`, options);
    this.name = 'VmmStartError';
  }
}

/** Thrown when the VM has ended. */
export class VmGoneError extends AppError {
  constructor() {
    super('guest_unreachable', 'the VM ended');
  }
}
