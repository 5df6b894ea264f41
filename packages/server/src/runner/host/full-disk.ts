/** A disk of the host that is full, whichever step finds out. */
import { AppError } from '@coppice/contract';

const CODES = new Set(['ENOSPC', 'EDQUOT']);

export function isDiskFull(error: unknown): boolean {
  return error instanceof Error && CODES.has((error as NodeJS.ErrnoException).code ?? '');
}

/** `capacity` if a disk is full. */
export function explainFullDisk(error: unknown): AppError | undefined {
  if (!isDiskFull(error)) return undefined;
  const message = 'disk: this machine has no room left; delete snapshots or sandboxes, or enlarge it';
  return new AppError('capacity', message, { cause: error });
}
