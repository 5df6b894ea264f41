/** Reads /proc for a QEMU process that sees other paths than the runner. */
import { readFileSync, readlinkSync } from 'node:fs';
import { INSIDE } from './vm-layout.ts';

const MOUNT_ROOT_FIELD = 3;
const MOUNT_POINT_FIELD = 4;
const DELETED = '//deleted';

/**
 * Returns the path of the socket directory of the QEMU with this pid, relative to the root of the directory's file
 * system: without the mount point. Also works if the directory was removed. Returns undefined if the process is gone.
 */
export function findSocketDirectory(pid: number): string | undefined {
  try {
    const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').split('\n');
    const fields = mounts.map((line) => line.split(' '));
    const mount = fields.find((each) => each[MOUNT_POINT_FIELD] === INSIDE.sockets);
    const root = mount?.[MOUNT_ROOT_FIELD]?.replace(DELETED, '');
    // Not jailed: /run is the host's, and the working directory is the socket directory.
    return root === undefined || root === '/' ? readlinkSync(`/proc/${pid}/cwd`) : root;
  } catch {
    return undefined;
  }
}

/** Whether the process sees its files at the paths of {@link INSIDE}. */
export function isJailed(pid: number): boolean {
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').split('\n');
  const fields = mounts.map((line) => line.split(' '));
  return fields.some((each) => each[MOUNT_POINT_FIELD] === INSIDE.overlays && each[MOUNT_ROOT_FIELD] !== '/');
}
