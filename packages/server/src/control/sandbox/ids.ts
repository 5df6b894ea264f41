/** Names of what sandboxes are made of: a prefix and 20 hex digits each. */
import { createHash, randomBytes } from 'node:crypto';

const HEX_DIGITS = 20;

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

export function newHibernationId(): string {
  return newId('hib');
}

/** Whoever knows the fork and the number of its children can find them again. */
export function listChildIds(forkId: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    const hash = createHash('sha256').update(`${forkId}/${index}`).digest('hex');
    return `run${hash.slice(0, HEX_DIGITS)}`;
  });
}

function newId(prefix: string): string {
  return `${prefix}${randomBytes(HEX_DIGITS / 2).toString('hex')}`;
}
