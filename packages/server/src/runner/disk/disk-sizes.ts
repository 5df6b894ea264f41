/**
 * Disk sizes of templates, in MiB. A sandbox of any other size gets the template of the next smaller one, and its disk
 * is grown before its code runs. So an arbitrary size costs no boot.
 *
 * Growing takes time per added GiB; a template costs a boot and the disk space for its memory. At 512 MiB mke2fs starts
 * to use larger blocks and fewer inodes, so a grown disk has the layout of a newly made one.
 */
import { AppError } from '@coppice/contract';

const TEMPLATE_DISKS_MIB = [64, 512, 4096, 16_384, 65_536, 262_144, 1_048_576] as const;

/** Returns the disk size of the template for a disk of `diskMiB`. Throws `invalid_request` if that is too small. */
export function templateDiskMiB(diskMiB: number): number {
  const found = TEMPLATE_DISKS_MIB.findLast((size) => size <= diskMiB);
  if (found === undefined)
    throw new AppError('invalid_request', `disk_mib: must be at least ${TEMPLATE_DISKS_MIB[0]} (MiB)`);
  return found;
}

/** Returns the largest disk that is made from a template of this disk size. */
export function largestDiskMiB(templateMiB: number): number {
  const next = TEMPLATE_DISKS_MIB.find((size) => size > templateMiB);
  return next === undefined ? templateMiB : next - 1;
}
