/** The files that a VM is started with. */

export interface DiskFiles {
  /** Read-only squashfs of the image. */
  imagePath: string;
  /** Read-only ext4 file under all overlays. */
  scratchBasePath: string;
  /** Holds the overlays, `<number>.qcow2`: QEMU may open what is put there, and make nothing. */
  overlayDirectory: string;
  /** Numbers of the overlays from the lowest to the topmost, which is this VM's own; the others are frozen. */
  overlays: readonly number[];
}

export function overlayName(number: number): string {
  return `${number}.qcow2`;
}

export interface MachineFiles {
  kernelPath: string;
  initramfsPath: string;
  ramPath: string;
  /** QEMU makes its sockets here; short, as socket paths hold 108 bytes. */
  socketDirectory: string;
  /** Absent for the accelerator probe, which boots no image. */
  disks: DiskFiles | undefined;
}

export type StartMode =
  | { kind: 'boot' }
  /** `isDeferred`: it waits to be told to load the state. `ownsRam`: what it writes goes to the RAM file. */
  | { kind: 'restore'; statePath: string; isDeferred: boolean; ownsRam: boolean };

/** Whether RAM is the file, not a private view of it. */
export function writesRam(mode: StartMode): boolean {
  return mode.kind === 'boot' || mode.ownsRam;
}

/** Names of the Unix sockets in the socket directory. */
export const SOCKETS = { qmp: 'qmp', ctl: 'ctl', data: 'data' } as const;
