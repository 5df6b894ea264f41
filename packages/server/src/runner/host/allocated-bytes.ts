import { statSync } from 'node:fs';

const BLOCK_BYTES = 512;

/** What a sparse file really takes; undefined when it is gone. */
export function findAllocatedBytes(path: string): number | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : found.blocks * BLOCK_BYTES;
}
