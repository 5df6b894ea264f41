import { newId } from '../../lib/new-id.ts';

export function newDiskId(): string {
  return newId('disk');
}

export function newDiskSnapshotId(): string {
  return newId('dsnap');
}
