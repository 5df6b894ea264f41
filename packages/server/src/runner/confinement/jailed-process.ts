/** What /proc says of a QEMU that sees other paths than we do. */
import { readFileSync, readlinkSync } from 'node:fs';
import { INSIDE } from './vm-layout.ts';

const MOUNT_ROOT_FIELD = 3;
const MOUNT_POINT_FIELD = 4;
const DELETED = '//deleted';

/**
 * Path of the socket directory of the QEMU with this id, in the file system that it lies on: without what leads to that
 * file system's mount point. Also when the directory has been removed. Undefined when the process is gone.
 */
export function findSocketDirectory(pid: number): string | undefined {
  try {
    const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').split('\n');
    const fields = mounts.map((line) => line.split(' '));
    const mount = fields.find((each) => each[MOUNT_POINT_FIELD] === INSIDE.sockets);
    const root = mount?.[MOUNT_ROOT_FIELD]?.replace(DELETED, '');
    // Not jailed: its /run is the host's, and it works in its socket directory.
    return root === undefined || root === '/' ? readlinkSync(`/proc/${pid}/cwd`) : root;
  } catch {
    return undefined;
  }
}

/** Whether the process has the places of {@link INSIDE} for its paths. */
export function isJailed(pid: number): boolean {
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').split('\n');
  const fields = mounts.map((line) => line.split(' '));
  return fields.some((each) => each[MOUNT_POINT_FIELD] === INSIDE.overlays && each[MOUNT_ROOT_FIELD] !== '/');
}
