import type { DiskInfo } from '../../../../sdk/src/index.ts';

export interface DiskNode {
  name: string;
  /** Undefined for a disk that the list does not have: it was deleted, or belongs to another team. */
  disk: DiskInfo | undefined;
  forks: DiskNode[];
}

/** Returns the tree of forks to which a disk belongs, from its oldest known ancestor on. */
export function buildLineage(disks: readonly DiskInfo[], name: string): DiskNode {
  const byName = new Map(disks.map((disk) => [disk.name, disk]));
  const seen = new Set([name]);
  let root = name;
  for (;;) {
    const parent = byName.get(root)?.parent;
    if (parent === null || parent === undefined || seen.has(parent)) break;
    seen.add(parent);
    root = parent;
  }
  return grow(root, { byName, disks, above: new Set() });
}

interface Known {
  byName: ReadonlyMap<string, DiskInfo>;
  disks: readonly DiskInfo[];
  /** Names on the way from the root: a name may be used again for a later disk, so parents can form a circle. */
  above: ReadonlySet<string>;
}

function grow(name: string, { byName, disks, above }: Known): DiskNode {
  const within = { byName, disks, above: new Set([...above, name]) };
  const forks = disks
    .filter((disk) => disk.parent === name && !within.above.has(disk.name))
    .sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1))
    .map((disk) => grow(disk.name, within));
  return { name, disk: byName.get(name), forks };
}
