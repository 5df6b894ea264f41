import { statfsSync } from 'node:fs';

const TMPFS_MAGIC = 0x0102_1994;

/** Pages of a tmpfs are memory of the process that wrote them; no control group can take them back. */
export function isTmpfs(directory: string): boolean {
  return statfsSync(directory).type === TMPFS_MAGIC;
}
