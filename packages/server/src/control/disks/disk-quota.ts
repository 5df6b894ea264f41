/** Checks whether an organization may have more disks. Pure. */
import { AppError, MAX_DISK_GB } from '@coppice/contract';
import type { Limits } from '../limits/organization-limits.ts';

export interface DiskUse {
  disks: number;
  /** Sum of the sizes. */
  gb: number;
}

/** Throws `capacity`, which names the limit, if `more` does not fit. */
export function checkDiskQuota(limits: Pick<Limits, 'disks' | 'diskGb'>, used: DiskUse, more: DiskUse): void {
  check('disks', limits.disks, used.disks, more.disks);
  check('GB of disks', limits.diskGb, used.gb, more.gb);
}

/** Returns how large the disk of an image may become whose record has `recordedGb` so far. */
export function findImportLimit(
  { diskGb }: Pick<Limits, 'diskGb'>,
  { gb }: DiskUse,
  recordedGb: number,
): number {
  return Math.max(recordedGb, Math.min(MAX_DISK_GB, diskGb - gb + recordedGb));
}

/** Builds the error for an image that is larger than {@link findImportLimit}. */
export function imageTooLarge({ diskGb }: Pick<Limits, 'diskGb'>, maxGb: number, cause: unknown): AppError {
  if (maxGb === MAX_DISK_GB)
    return new AppError('invalid_request', `body: the image has more than ${maxGb} GB; no disk can`, {
      cause,
    });
  return new AppError(
    'capacity',
    `body: the image has more than the ${maxGb} GB that the organization may still have, the limit is ${diskGb} GB of disks; delete some`,
    { cause },
  );
}

function check(what: string, limit: number, used: number, more: number): void {
  if (more === 0 || used + more <= limit) return;
  throw new AppError(
    'capacity',
    `the organization has ${used} ${what} and asks for ${more} more, the limit is ${limit}; delete some`,
  );
}
