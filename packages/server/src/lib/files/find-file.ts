/** Reads a file that may be missing. */
import { readFileSync } from 'node:fs';

/**
 * Returns undefined only if there is no such file. Any other failure is thrown: taken for a missing file, a lack of free
 * descriptors would make the caller replace what it cannot read.
 */
export function findFile(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
