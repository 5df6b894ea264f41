/**
 * The block nodes of a persistent disk in QEMU.
 *
 *   device ─► workspace-<n> (qcow2) ─► … ─► version-<m> (NBD)        without a disk: device ─► workspace-empty
 *                  └─► workspace-<n>-file
 */
import { join } from 'node:path';
import { overlayName } from '../vm/vm-files.ts';
import { BLOCK_SOCKET, type WorkspaceVersion } from '../vm/workspace-device.ts';

/** QEMU's device id of the persistent disk. */
export const WORKSPACE_DEVICE = 'workspace-disk';
/** Node name of the disk that a VM has without a persistent disk. */
export const EMPTY_NODE = 'workspace-empty';
/** Size of the clusters of overlays (disk/overlay-file.ts). */
export const CLUSTER_BYTES = 128 * 1024;

const EMPTY_BYTES = 1024 * 1024;
/** A block server that starts again is back long before. After this time QEMU fails requests, and stops the guest. */
const RECONNECT_DELAY_S = 300;
export const OPEN_TIMEOUT_S = 10;

/** An overlay has two nodes, one for its format and one for its file. */
export const OVERLAY_PATTERN = /^workspace-(\d{1,9})(?:-file)?$/u;
export const VERSION_PATTERN = /^version-(\d{1,9})$/u;

export interface BlockNode extends Record<string, unknown> {
  'node-name': string;
}

export function workspaceNode(overlay: number): string {
  return `workspace-${overlay}`;
}

export function versionNode(version: number): string {
  return `version-${version}`;
}

export function buildEmptyNode(): BlockNode {
  return { driver: 'null-co', 'node-name': EMPTY_NODE, size: EMPTY_BYTES, 'read-zeroes': true };
}

/** Flushes are honoured, unlike those of the scratch disk: a flushed write survives a crash of the host. */
export function buildFileNode(directory: string, overlay: number): BlockNode {
  return {
    driver: 'file',
    filename: join(directory, overlayName(overlay)),
    'node-name': `${workspaceNode(overlay)}-file`,
    locking: 'off',
    discard: 'unmap',
  };
}

/**
 * All options of an overlay: QEMU gives those that a reopen omits their defaults. The backing node is named here and
 * never read from the file's header, which an escaped QEMU owns. Null: the overlay gets it when it is put on top.
 */
export function buildOverlayNode(overlay: number, backing: string | null): BlockNode {
  const node = workspaceNode(overlay);
  return {
    driver: 'qcow2',
    'node-name': node,
    file: `${node}-file`,
    backing,
    discard: 'unmap',
    // Else a flush after a new cluster waits for the disk twice. Nothing reads an overlay's reference counts after its VM.
    'lazy-refcounts': true,
  };
}

export function buildVersionNode(
  serverDirectory: string,
  { number, exportName }: WorkspaceVersion,
): BlockNode {
  return {
    driver: 'nbd',
    'node-name': versionNode(number),
    server: { type: 'unix', path: join(serverDirectory, BLOCK_SOCKET) },
    export: exportName,
    'read-only': true,
    'reconnect-delay': RECONNECT_DELAY_S,
    'open-timeout': OPEN_TIMEOUT_S,
  };
}
