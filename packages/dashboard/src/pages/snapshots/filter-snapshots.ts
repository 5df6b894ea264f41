import type { SnapshotInfo } from '../../../../sdk/src/index.ts';

/** Returns the snapshots in whose name, id, sandbox or image every word of the search occurs. */
export function filterSnapshots(snapshots: readonly SnapshotInfo[], search: string): readonly SnapshotInfo[] {
  const words = search.toLowerCase().split(/\s+/u).filter(Boolean);
  if (words.length === 0) return snapshots;
  return snapshots.filter(({ id, name, runId, image }) => {
    const text = [name ?? '', id, runId, image].join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
