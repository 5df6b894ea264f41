/** Ids of sandboxes, forks, snapshots, rollbacks and hibernations: a prefix and 20 hex digits each. */
import { createHash } from 'node:crypto';
import { ID_HEX_DIGITS, newId } from '../../../lib/new-id.ts';

export function newSandboxId(): string {
  return newId('run');
}

/** Returns the id of one fork, which may have many children. */
export function newForkId(): string {
  return newId('fork');
}

export function newSnapshotId(): string {
  return newId('snap');
}

/** Returns whether a sandbox was restored from a snapshot. `origin` is the column of its row. */
export function isSnapshotId(origin: string | null): origin is string {
  return origin?.startsWith('snap') ?? false;
}

export function isForkId(origin: string | null): boolean {
  return origin?.startsWith('fork') ?? false;
}

export function newRollbackId(): string {
  return newId('roll');
}

export function newHibernationId(): string {
  return newId('hib');
}

/** Derives the ids of a fork's children from its id, so that a retry finds them again. */
export function listChildIds(forkId: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    const hash = createHash('sha256').update(`${forkId}/${index}`).digest('hex');
    return `run${hash.slice(0, ID_HEX_DIGITS)}`;
  });
}
