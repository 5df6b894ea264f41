/**
 * Merges layers into one archive, in two passes. The first reads only headers and builds the tree of the image
 * ({@link LayerTree}); the second copies the contents that remain, in the order in which they lie in the layers.
 */
import { open } from 'node:fs/promises';
import { ByteWindow } from '../../../lib/tar/byte-window.ts';
import type { Inode } from '../../../lib/tar/inode.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { LayerTree } from './layer-tree.ts';
import { readTar } from '../../../lib/tar/tar-reader.ts';
import type { TarWriter } from '../../../lib/tar/tar-writer.ts';
import type { TreeLimits } from './tree-budget.ts';

const WINDOW_BYTES = 1 << 20;

/** The first pass. Layers are uncompressed tar archives, the lowest first. Throws {@link LayerError} with the layer. */
export async function readLayers(
  layerPaths: readonly string[],
  limits: TreeLimits,
  signal: AbortSignal,
): Promise<LayerTree> {
  const tree = new LayerTree(limits);
  for (const [layer, path] of layerPaths.entries()) {
    await using file = await open(path);
    try {
      for await (const entry of readTar(file)) {
        signal.throwIfAborted();
        tree.apply(entry, layer);
      }
    } catch (error) {
      if (!(error instanceof LayerError)) throw error;
      throw new LayerError(`layer ${layer + 1} of ${layerPaths.length}: ${error.message}`, { cause: error });
    }
  }
  return tree;
}

export interface WriteOptions {
  signal: AbortSignal;
  /** Called with the size of each file that is written. */
  onBytes?: (bytes: number) => void;
}

/** The second pass: writes the archive of the tree. */
export async function writeFlatTar(
  tree: LayerTree,
  layerPaths: readonly string[],
  writer: TarWriter,
  { signal, onBytes }: WriteOptions,
): Promise<void> {
  const plan = planArchive(tree);
  for (const { path, inode } of plan.withoutContent) {
    signal.throwIfAborted();
    await writer.writeInode(path, inode);
  }
  for (const [layer, files] of plan.filesByLayer) {
    const layerPath = layerPaths[layer];
    if (layerPath === undefined) throw new RangeError(`layer ${layer}`);
    await using file = await open(layerPath);
    const window = new ByteWindow(file, WINDOW_BYTES);
    for (const { path, inode } of files) {
      signal.throwIfAborted();
      await writer.writeInode(path, inode);
      await writer.writeContent(window, inode);
      onBytes?.(inode.sizeBytes);
    }
  }
  for (const { path, target, inode } of plan.hardlinks) {
    signal.throwIfAborted();
    await writer.writeHardlink(path, target, inode);
  }
  await writer.end();
}

interface NamedInode {
  path: string;
  inode: Inode;
}

interface ArchivePlan {
  /** All but regular files; a directory comes before its contents. */
  withoutContent: NamedInode[];
  /** Files by the number of their layer, in the order of their offsets. */
  filesByLayer: Map<number, NamedInode[]>;
  /** Further names of inodes that were written before. */
  hardlinks: (NamedInode & { target: string })[];
}

function planArchive(tree: LayerTree): ArchivePlan {
  const plan: ArchivePlan = { withoutContent: [], filesByLayer: new Map(), hardlinks: [] };
  const firstNames = new Map<Inode, string>();
  for (const { path, inode } of tree.walk()) {
    const target = firstNames.get(inode);
    if (target !== undefined) {
      plan.hardlinks.push({ path, inode, target });
      continue;
    }
    firstNames.set(inode, path);
    if (inode.type === 'file') addFile(plan.filesByLayer, { path, inode });
    else plan.withoutContent.push({ path, inode });
  }
  for (const files of plan.filesByLayer.values())
    files.sort((a, b) => a.inode.dataOffset - b.inode.dataOffset);
  return plan;
}

function addFile(filesByLayer: Map<number, NamedInode[]>, file: NamedInode): void {
  const files = filesByLayer.get(file.inode.layer);
  if (files === undefined) filesByLayer.set(file.inode.layer, [file]);
  else files.push(file);
}
