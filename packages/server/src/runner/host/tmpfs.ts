import { statfsSync } from 'node:fs';

const TMPFS_MAGIC = 0x0102_1994;

/**
 * Whether a directory is on a tmpfs. Its pages count as memory of the process that wrote them; no control group can
 * reclaim them.
 */
export function isTmpfs(directory: string): boolean {
  return statfsSync(directory).type === TMPFS_MAGIC;
}
