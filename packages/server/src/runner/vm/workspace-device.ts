/**
 * The device of a VM for the persistent disk at `/workspace`. Every VM has the device, so that saved state loads with and
 * without a disk. Without one it is an empty disk of 1 MiB that the agent ignores.
 *
 *   guest ─► top overlay, written by the VMM ─► sealed overlays, never written again ─► version, read from a server
 *
 * Overlays are files of one directory, which the runner creates and removes (`overlayName`); the VMM opens and closes them.
 * Versions are exports of the block server, whose socket is in a directory that every VMM sees.
 */

/** A version of a disk, as the block server exports it. */
export interface WorkspaceVersion {
  /** Number of the version, unique for one VM. */
  number: number;
  /** Name of the export: a secret of this VM, because the server serves the versions of all disks. */
  exportName: string;
}

/** The disk of a VM that continues with the disk mounted. */
export interface WorkspaceSource {
  version: WorkspaceVersion;
  /** The one overlay over the version, still empty. */
  overlay: number;
  sizeBytes: number;
}

/** Directories on the host that every VM has, with or without a disk. */
export interface WorkspaceDirectories {
  /** Holds the overlays. The VMM may open files there and create none. */
  overlayDirectory: string;
  /** Holds the block server's socket (`BLOCK_SOCKET`). The socket may be made anew, but not the directory. */
  serverDirectory: string;
}

export interface WorkspaceFiles extends WorkspaceDirectories {
  /** Absent: the VM starts without a disk, and may get one with {@link WorkspaceDevice.attach}. */
  source?: WorkspaceSource;
}

/** Name of the block server's socket in its directory. */
export const BLOCK_SOCKET = 'nbd';

export interface WorkspaceDevice {
  /** Overlays and versions that the VMM has open, ascending, in use or not; the top of the disk, if there is a disk. */
  list(): Promise<{ overlays: number[]; versions: number[]; top: number | undefined }>;
  /**
   * Replaces the empty disk of a running guest by an empty overlay over a version, and notifies the guest of the size. A
   * repeated call after a failure completes it.
   */
  attach(source: WorkspaceSource): Promise<void>;
  /** Opens an overlay while the guest runs, so that {@link push} takes little time. */
  open(overlay: number): Promise<void>;
  /**
   * Puts an open overlay on top; the guest may run. The former top is complete and not written any more. The caller
   * syncs its file before: else the guest's disk waits while the VMM does it.
   */
  push(overlay: number): Promise<void>;
  /** Puts an overlay, and all above it, onto a version which contains everything below the overlay. */
  rebase(overlay: number, version: WorkspaceVersion): Promise<void>;
  /** Closes an overlay that is not part of the disk any more. It may be open, partly open, or closed. */
  closeOverlay(overlay: number): Promise<void>;
  /** Closes a version that no overlay is on any more. It may be open or closed. */
  closeVersion(version: number): Promise<void>;
  /** Grows the disk and notifies the guest, which must be running. */
  grow(sizeBytes: number): Promise<void>;
}
