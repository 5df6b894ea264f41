/** The files with which a VM is started. */

/** The disks of a VM. Overlays are qcow2 files; a VMM ignores the backing file that one of them names. */
export interface DiskFiles {
  /** Read-only squashfs of the image. */
  imagePath: string;
  /** Read-only ext4 file under all overlays. */
  scratchBasePath: string;
  /** Holds the overlays. The VMM may open files there and create none. */
  overlayDirectory: string;
  /** Numbers of the overlays, lowest first. The last one is this VM's own; the others are frozen. */
  overlays: readonly number[];
}

export function overlayName(number: number): string {
  return `${number}.qcow2`;
}

/** Name of the file of a template or a capture that holds the device state. */
export const DEVICES_NAME = 'devices';
