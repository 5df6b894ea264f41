/** Checks whether an organization may have more disks. Pure. */
import { AppError } from '@coppice/contract';
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

function check(what: string, limit: number, used: number, more: number): void {
  if (more === 0 || used + more <= limit) return;
  throw new AppError(
    'capacity',
    `the organization has ${used} ${what} and asks for ${more} more, the limit is ${limit}; delete some`,
  );
}
