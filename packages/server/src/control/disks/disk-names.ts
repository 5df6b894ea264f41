/** Names of disks that are made from other disks. Pure. */
import { MAX_DISK_NAME_LENGTH } from '@coppice/contract';

/** Returns `<base>-<n>` for the lowest free `n`, `count` times. A long base is cut. */
export function pickNames(base: string, count: number, taken: ReadonlySet<string>): string[] {
  const names: string[] = [];
  for (let number = 1; names.length < count; number += 1) {
    const suffix = `-${number}`;
    const name = `${base.slice(0, MAX_DISK_NAME_LENGTH - suffix.length)}${suffix}`;
    if (!taken.has(name)) names.push(name);
  }
  return names;
}
