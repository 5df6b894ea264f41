import type { FileEntry } from '../../../../../sdk/src/index.ts';

export const FILE_ORDERS = ['name', 'size', 'newest'] as const;
export type FileOrder = (typeof FILE_ORDERS)[number];

const NAMES = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

/** Returns the entries whose name contains the search, directories first. */
export function orderFiles(
  entries: readonly FileEntry[],
  { order, search }: { order: FileOrder; search: string },
): readonly FileEntry[] {
  const wanted = search.toLowerCase();
  return entries
    .filter(({ name }) => wanted === '' || name.toLowerCase().includes(wanted))
    .sort((a, b) => compareKinds(a, b) || COMPARISONS[order](a, b) || compareText(a.name, b.name));
}

function compareKinds(a: FileEntry, b: FileEntry): number {
  return Number(b.type === 'dir') - Number(a.type === 'dir');
}

const COMPARISONS: Readonly<Record<FileOrder, (a: FileEntry, b: FileEntry) => number>> = {
  name: (a, b) => NAMES.compare(a.name, b.name),
  size: (a, b) => b.size - a.size,
  newest: (a, b) => compareText(b.mtime, a.mtime),
};

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
