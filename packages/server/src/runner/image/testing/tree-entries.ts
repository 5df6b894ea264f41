/** Short ways to write entries and trees in tests. */
import type { LayerTree } from '../layers/layer-tree.ts';
import type { TarEntry } from '../../../lib/tar/tar-reader.ts';

export const TEST_LIMITS = { maxEntries: 100_000, maxContentBytes: 1 << 30, maxMetadataBytes: 1 << 24 };

let nextOffset = 512;

/** Makes an entry, by default a file of one byte; each entry has its own content offset. */
export function entry(name: string, values: Partial<TarEntry> = {}): TarEntry {
  nextOffset += 512;
  const type = values.type ?? (name.endsWith('/') ? 'directory' : 'file');
  return {
    name,
    type,
    mode: type === 'directory' ? 0o755 : 0o644,
    uid: 0,
    gid: 0,
    mtimeSeconds: 0,
    sizeBytes: type === 'file' ? 1 : 0,
    dataOffset: nextOffset,
    linkName: '',
    deviceMajor: 0,
    deviceMinor: 0,
    xattrs: new Map(),
    hasAcl: false,
    ...values,
  };
}

export function symlink(name: string, target: string): TarEntry {
  return entry(name, { type: 'symlink', linkName: target });
}

export function hardlink(name: string, target: string): TarEntry {
  return entry(name, { type: 'hardlink', linkName: target });
}

/** Returns all names except the root's, sorted. */
export function names(tree: LayerTree): string[] {
  return [...tree.walk()]
    .map(({ path }) => path)
    .filter((path) => path !== '')
    .sort();
}
