/**
 * The paths of a VM's files as its QEMU sees them. In a jail they are fixed and the same for every VM. So neither
 * QEMU's arguments nor a directory listing by an escaped guest says anything about the host or other VMs.
 */
import type { DiskFiles } from '../vm/vm-files.ts';
import type { WorkspaceFiles } from '../vm/workspace-device.ts';
import { DEV_NULL, type Mount } from './jail-plan.ts';

export interface MachineFiles {
  kernelPath: string;
  initramfsPath: string;
  ramPath: string;
  /** QEMU creates its sockets here. The path is short, as socket paths hold 108 bytes. */
  socketDirectory: string;
  /** Absent for the accelerator probe, which boots no image. */
  disks: DiskFiles | undefined;
  /** Absent as well. */
  workspace: WorkspaceFiles | undefined;
}

export type StartMode =
  | { kind: 'boot' }
  /** `isDeferred`: QEMU waits for a command to load the state. `ownsRam`: it writes to the RAM file itself. */
  | { kind: 'restore'; statePath: string; isDeferred: boolean; ownsRam: boolean };

/** Whether RAM is the file itself, not a private view of it. */
export function writesRam(mode: StartMode): boolean {
  return mode.kind === 'boot' || mode.ownsRam;
}

/** Fixed paths in a jail. */
export const INSIDE = {
  kernel: '/kernel',
  initramfs: '/initramfs',
  ram: '/ram',
  state: '/state',
  image: '/image',
  scratchBase: '/scratch-base',
  overlays: '/disk',
  workspace: '/workspace',
  blocks: '/blocks',
  sockets: '/run',
} as const;

/** The directories of the persistent disk in a jail. */
export const WORKSPACE_INSIDE = {
  overlayDirectory: INSIDE.workspace,
  serverDirectory: INSIDE.blocks,
} as const;

export interface VmLayout {
  /** Paths as QEMU uses them. */
  files: MachineFiles;
  mode: StartMode;
  mounts: Mount[];
}

/** The layout in a jail. Only a template in the making writes its RAM; a sandbox maps it privately and read-only. */
export function arrangeInside(files: MachineFiles, mode: StartMode): VmLayout {
  const { disks, workspace } = files;
  const mounts: Mount[] = [
    DEV_NULL,
    { source: files.kernelPath, target: INSIDE.kernel },
    { source: files.initramfsPath, target: INSIDE.initramfs },
    { source: files.ramPath, target: INSIDE.ram, writable: writesRam(mode) },
    { source: files.socketDirectory, target: INSIDE.sockets, writable: true },
  ];
  if (mode.kind === 'restore') mounts.push({ source: mode.statePath, target: INSIDE.state });
  if (disks !== undefined) {
    mounts.push(
      { source: disks.imagePath, target: INSIDE.image },
      { source: disks.scratchBasePath, target: INSIDE.scratchBase },
      // QEMU does not own the directory: it can write to the files placed there, and create none.
      { source: disks.overlayDirectory, target: INSIDE.overlays, writable: true },
    );
  }
  if (workspace !== undefined) {
    mounts.push(
      { source: workspace.overlayDirectory, target: INSIDE.workspace, writable: true },
      // A directory, because the socket may be made anew. A socket can be connected to through a read-only mount.
      { source: workspace.serverDirectory, target: INSIDE.blocks },
    );
  }
  return {
    mounts,
    mode: mode.kind === 'restore' ? { ...mode, statePath: INSIDE.state } : mode,
    files: {
      kernelPath: INSIDE.kernel,
      initramfsPath: INSIDE.initramfs,
      ramPath: INSIDE.ram,
      socketDirectory: INSIDE.sockets,
      disks:
        disks === undefined
          ? undefined
          : {
              imagePath: INSIDE.image,
              scratchBasePath: INSIDE.scratchBase,
              overlayDirectory: INSIDE.overlays,
              overlays: disks.overlays,
            },
      workspace: workspace === undefined ? undefined : { ...workspace, ...WORKSPACE_INSIDE },
    },
  };
}

/** The layout without a mount namespace: QEMU sees the host's paths. */
export function arrangeOutside(files: MachineFiles, mode: StartMode): VmLayout {
  return { files, mode, mounts: [] };
}
