/**
 * Sizes of the disks that templates are booted with, in MiB. A sandbox of any other size gets the template of the next
 * smaller one, whose disk is grown before the sandbox's code runs: a size that a caller makes up costs no boot.
 *
 * Growing takes time by the GiB that is added, and a template a boot and its memory on disk. 512 MiB is where mke2fs
 * begins to use larger blocks and fewer inodes, so that a grown disk has the layout that it would have been made with.
 */
import { AppError } from '@coppice/contract';

const TEMPLATE_DISKS_MIB = [64, 512, 4096, 16_384, 65_536, 262_144, 1_048_576] as const;

/** Of the template that a disk of this size is made from. Throws `invalid_request` for one that is too small. */
export function templateDiskMiB(diskMiB: number): number {
  const found = TEMPLATE_DISKS_MIB.findLast((size) => size <= diskMiB);
  if (found === undefined)
    throw new AppError('invalid_request', `disk_mib: must be at least ${TEMPLATE_DISKS_MIB[0]} (MiB)`);
  return found;
}

/** The largest disk that is made from a template with a disk of this size. */
export function largestDiskMiB(templateMiB: number): number {
  const next = TEMPLATE_DISKS_MIB.find((size) => size > templateMiB);
  return next === undefined ? templateMiB : next - 1;
}
