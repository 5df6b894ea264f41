/**
 * The paths of a VM's files as its QEMU sees them. In a jail they are fixed and the same for every VM. So neither
 * QEMU's arguments nor a directory listing by an escaped guest says anything about the host or other VMs.
 */
import { writesRam, type MachineFiles, type StartMode } from '../vm/vm-files.ts';
import { DEV_NULL, type Mount } from './jail-plan.ts';

/** Fixed paths in a jail. */
export const INSIDE = {
  kernel: '/kernel',
  initramfs: '/initramfs',
  ram: '/ram',
  state: '/state',
  image: '/image',
  scratchBase: '/scratch-base',
  overlays: '/disk',
  sockets: '/run',
} as const;

export interface VmLayout {
  /** Paths as QEMU uses them. */
  files: MachineFiles;
  mode: StartMode;
  mounts: Mount[];
}

/** The layout in a jail. Only a template in the making writes its RAM; a sandbox maps it privately and read-only. */
export function arrangeInside(files: MachineFiles, mode: StartMode): VmLayout {
  const { disks } = files;
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
    },
  };
}

/** The layout without a mount namespace: QEMU sees the host's paths. */
export function arrangeOutside(files: MachineFiles, mode: StartMode): VmLayout {
  return { files, mode, mounts: [] };
}
