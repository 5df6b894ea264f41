/** The files with which a VM is started. */

export interface DiskFiles {
  /** Read-only squashfs of the image. */
  imagePath: string;
  /** Read-only ext4 file under all overlays. */
  scratchBasePath: string;
  /** Holds the overlays, `<number>.qcow2`. QEMU may open files there and create none. */
  overlayDirectory: string;
  /** Numbers of the overlays, lowest first. The last one is this VM's own; the others are frozen. */
  overlays: readonly number[];
}

export function overlayName(number: number): string {
  return `${number}.qcow2`;
}

export interface MachineFiles {
  kernelPath: string;
  initramfsPath: string;
  ramPath: string;
  /** QEMU creates its sockets here. The path is short, as socket paths hold 108 bytes. */
  socketDirectory: string;
  /** Absent for the accelerator probe, which boots no image. */
  disks: DiskFiles | undefined;
}

export type StartMode =
  | { kind: 'boot' }
  /** `isDeferred`: QEMU waits for a command to load the state. `ownsRam`: it writes to the RAM file itself. */
  | { kind: 'restore'; statePath: string; isDeferred: boolean; ownsRam: boolean };

/** Whether RAM is the file itself, not a private view of it. */
export function writesRam(mode: StartMode): boolean {
  return mode.kind === 'boot' || mode.ownsRam;
}

/** Names of the Unix sockets in the socket directory. */
export const SOCKETS = { qmp: 'qmp', ctl: 'ctl', data: 'data' } as const;
