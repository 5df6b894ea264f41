import { statSync } from 'node:fs';

const BLOCK_BYTES = 512;

/** The bytes that a sparse file takes on disk; undefined when the file is gone. */
export function findAllocatedBytes(path: string): number | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : found.blocks * BLOCK_BYTES;
}
