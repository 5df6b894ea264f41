/** Errors about disks. Messages name the field of the request, if there is one, and the remedy. */
import { AppError } from '@coppice/contract';
import type { DiskRow } from './disk-tables.ts';

const MAX_NAMED = 3;

export function noDisk(name: string, field = ''): AppError {
  return new AppError('not_found', `${prefix(field)}there is no disk ${JSON.stringify(name)}`);
}

export function noSnapshot(disk: string, name: string, field = ''): AppError {
  const what = `the disk ${JSON.stringify(disk)} has no snapshot ${JSON.stringify(name)}`;
  return new AppError('not_found', `${prefix(field)}${what}`);
}

export function nameTaken(name: string, field = 'name'): AppError {
  return new AppError('already_exists', `${field}: there is a disk ${JSON.stringify(name)} already`);
}

type Holding = Pick<DiskRow, 'name' | 'sandbox_id' | 'attachment'>;

export function inUse({ name, sandbox_id, attachment }: Holding, field = ''): AppError {
  const disk = `the disk ${JSON.stringify(name)}`;
  const message =
    attachment === 'detaching'
      ? `what the sandbox ${sandbox_id} wrote to ${disk} is still being stored; try again`
      : `the sandbox ${sandbox_id} has ${disk}; destroy or hibernate it first`;
  return new AppError('disk_in_use', `${prefix(field)}${message}`);
}

export function hasForks(name: string, forks: readonly string[]): AppError {
  const named = forks.slice(0, MAX_NAMED).join(', ');
  const more = forks.length > MAX_NAMED ? ` and ${forks.length - MAX_NAMED} more` : '';
  return new AppError(
    'disk_has_forks',
    `the disk ${JSON.stringify(name)} cannot be deleted while disks forked from it exist: ${named}${more}`,
  );
}

/** The disk that a hibernated sandbox has mounted is not there any more, or has changed. */
export function changed(name: string, cause?: unknown): AppError {
  const message = `the disk ${JSON.stringify(name)} has changed since the sandbox was hibernated`;
  return new AppError(
    'disk_changed',
    `${message}; resume it with ?disk=fresh to mount the disk as it is now`,
    {
      cause,
    },
  );
}

function prefix(field: string): string {
  return field === '' ? '' : `${field}: `;
}

export function isGrowing(name: string): AppError {
  return new AppError('unavailable', `the disk "${name}" is being grown; try again`);
}

export function isForking(name: string): AppError {
  return new AppError('unavailable', `the disk "${name}" is being forked; try again`);
}
