/** Names of what sandboxes are made of: a prefix and 20 hex digits each. */
import { createHash } from 'node:crypto';
import { ID_HEX_DIGITS, newId } from '../../../lib/new-id.ts';

export function newSandboxId(): string {
  return newId('run');
}

/** Of one fork, whatever number of children it has. */
export function newForkId(): string {
  return newId('fork');
}

export function newSnapshotId(): string {
  return newId('snap');
}

/** Of what a sandbox came from. */
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

/** Whoever knows the fork and the number of its children can find them again. */
export function listChildIds(forkId: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    const hash = createHash('sha256').update(`${forkId}/${index}`).digest('hex');
    return `run${hash.slice(0, ID_HEX_DIGITS)}`;
  });
}
