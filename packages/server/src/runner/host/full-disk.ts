/** Recognizes that a disk of the host is full, in any step. */
import { AppError } from '@coppice/contract';

const CODES = new Set(['ENOSPC', 'EDQUOT']);

export function isDiskFull(error: unknown): boolean {
  return error instanceof Error && CODES.has((error as NodeJS.ErrnoException).code ?? '');
}

/** Returns a `capacity` error if a disk is full, else undefined. */
export function explainFullDisk(error: unknown): AppError | undefined {
  if (!isDiskFull(error)) return undefined;
  const message = 'disk: this machine has no space left; delete snapshots or sandboxes, or enlarge the disk';
  return new AppError('capacity', message, { cause: error });
}
