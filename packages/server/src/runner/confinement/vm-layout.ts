/**
 * Where a VM's files are for its QEMU. In a jail each has one fixed place, whatever VM it is, so that neither
 * QEMU's arguments nor what an escaped guest could list says anything of the host or of other VMs.
 */
import { writesRam, type MachineFiles, type StartMode } from '../vm/vm-files.ts';
import { DEV_NULL, type Mount } from './jail-plan.ts';

/** Fixed places in a jail. */
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

/** Template RAM is written only while the template is made; a sandbox maps it privately from a read-only mount. */
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
      // The directory is not QEMU's own: it can write to files put there for it, and make none.
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

/** Without a mount namespace QEMU sees the host's paths. */
export function arrangeOutside(files: MachineFiles, mode: StartMode): VmLayout {
  return { files, mode, mounts: [] };
}
