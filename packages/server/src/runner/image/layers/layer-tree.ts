/**
 * The merged tree of a stack of layers, as a pure model: entries are applied one by one, contents stay where they are.
 *
 *   tar entries ──apply()──► names ──► inodes ──► content {layer, offset}
 *
 * The rules are those of the OCI image specification, and where it says nothing, those of the container engines:
 *  - A name is bound to an inode. A hard link binds a second name to the same inode. An entry over an existing name
 *    makes a new inode, so that other names keep the old content. Only a directory over a directory keeps its contents.
 *  - `.wh.NAME` removes NAME and `.wh..wh..opq` removes all in its directory, but only entries of lower layers.
 *  - Symbolic links among the parents of an entry are followed inside the image; missing parents are made.
 */
import { buildInode, implicitDirectory, type Inode } from '../../../lib/tar/inode.ts';
import { LayerError, quoteName } from '../../../lib/tar/layer-error.ts';
import { MAX_NAME_BYTES, MAX_PATH_BYTES, parseLayerPath } from '../../../lib/tar/layer-path.ts';
import type { TarEntry } from '../../../lib/tar/tar-reader.ts';
import { TreeBudget, type TreeLimits } from './tree-budget.ts';

interface Node {
  inode: Inode;
  /** The layer that bound this name. */
  layer: number;
  /** Set for a directory: its entries, {@link NO_CHILDREN} until it has some. */
  children: ReadonlyMap<string, Node> | undefined;
  /** Length of the path from the root; its limit bounds the depth of the tree. */
  pathBytes: number;
}

type DirectoryNode = Node & { children: ReadonlyMap<string, Node> };

/** Shared by all empty directories: a million empty maps would take half a gigabyte. */
const NO_CHILDREN: ReadonlyMap<string, Node> = new Map();

const WHITEOUT = '.wh.';
const OPAQUE = '.wh..wh..opq';
/** Names of the aufs storage driver's own files. */
const WHITEOUT_META = '.wh..wh.';
/** The limit of Linux, against loops and against links that multiply each other. */
const MAX_SYMLINKS = 40;
const MAX_PATH_STEPS = 4096;
export class LayerTree {
  readonly #budget: TreeBudget;
  readonly #root: DirectoryNode = {
    inode: implicitDirectory(),
    layer: -1,
    children: NO_CHILDREN,
    pathBytes: 0,
  };
  #acls = 0;

  constructor(limits: TreeLimits) {
    this.#budget = new TreeBudget(limits);
  }

  /** The sum of the sizes of all files of all layers. */
  get contentBytes(): number {
    return this.#budget.contentBytes;
  }

  /** The number of entries whose access control lists are left out. */
  get acls(): number {
    return this.#acls;
  }

  /**
   * Applies one entry of layer `layer`; call it from the lowest layer up, in archive order. Throws {@link LayerError}.
   */
  apply(entry: TarEntry, layer: number): void {
    const path = parseLayerPath(entry.name);
    this.#budget.countEntry(entry);
    if (entry.hasAcl) this.#acls += 1;
    const name = path.pop();
    if (name === undefined) return this.#applyRoot(entry, layer);
    if ([...path, name].some(isDriverFile)) return;
    if (name.startsWith(WHITEOUT)) return this.#applyWhiteout(path, name, layer);
    const parent = this.#makeDirectory(path, layer);
    if (entry.type === 'hardlink') return this.#bind(parent, name, this.#linkTarget(entry), layer);
    this.#bind(parent, name, buildInode(entry, entry.type, layer), layer);
  }

  /** Yields all names from the root down, a directory before its contents; the root's path is empty. */
  *walk(): Generator<{ path: string; inode: Inode }> {
    const stack: { path: string; node: Node }[] = [{ path: '', node: this.#root }];
    for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
      const { path, node } = next;
      yield { path, inode: node.inode };
      for (const [name, child] of node.children ?? []) {
        stack.push({ path: path === '' ? name : `${path}/${name}`, node: child });
      }
    }
  }

  #applyRoot(entry: TarEntry, layer: number): void {
    if (entry.type !== 'directory') throw new LayerError(`the root is a ${entry.type}`);
    this.#root.inode = buildInode(entry, 'directory', layer);
    this.#root.layer = layer;
  }

  #bind(parent: DirectoryNode, name: string, inode: Inode, layer: number): void {
    const existing = parent.children.get(name);
    if (existing?.children !== undefined && inode.type === 'directory') {
      existing.inode = inode;
      existing.layer = layer;
      return;
    }
    // A hard link of a name to itself changes nothing, not even the layer.
    if (existing?.inode === inode) return;
    this.#addChild(parent, name, {
      inode,
      layer,
      children: inode.type === 'directory' ? NO_CHILDREN : undefined,
    });
  }

  #addChild<T extends Omit<Node, 'pathBytes'>>(
    parent: DirectoryNode,
    name: string,
    values: T,
  ): T & { pathBytes: number } {
    const child = { ...values, pathBytes: childPathBytes(parent, name) };
    // Counts the resolved path, not the entry's name: through a link a short name may mean a long path in the image.
    this.#budget.countMetadata(child.pathBytes);
    if (parent.children === NO_CHILDREN) parent.children = new Map();
    ownChildren(parent).set(name, child);
    return child;
  }

  #linkTarget(entry: TarEntry): Inode {
    const path = parseLayerPath(entry.linkName);
    const name = path.pop();
    const target = name === undefined ? undefined : this.#findDirectory(path)?.children.get(name);
    if (target === undefined) {
      throw new LayerError(
        `${quoteName(entry.name)} is a hard link to ${quoteName(entry.linkName)}, which is not there`,
      );
    }
    if (target.children !== undefined)
      throw new LayerError(`${quoteName(entry.name)} is a hard link to a directory`);
    return target.inode;
  }

  #applyWhiteout(path: string[], name: string, layer: number): void {
    const parent = this.#findDirectory(path);
    if (parent === undefined) return;
    if (name === OPAQUE) return this.#removeLower(parent, layer);
    const hidden = name.slice(WHITEOUT.length);
    const child = parent.children.get(hidden);
    if (child !== undefined && !this.#survivesWhiteout(child, layer)) ownChildren(parent).delete(hidden);
  }

  #removeLower(directory: DirectoryNode, layer: number): void {
    for (const [name, child] of directory.children) {
      if (!this.#survivesWhiteout(child, layer)) ownChildren(directory).delete(name);
    }
  }

  /**
   * Removes entries of lower layers below `node`. Returns whether some of this layer remain. Path length bounds depth.
   */
  #survivesWhiteout(node: Node, layer: number): boolean {
    this.#budget.countStep();
    if (!isDirectory(node)) return node.layer === layer;
    this.#removeLower(node, layer);
    if (node.layer === layer) return true;
    if (node.children.size === 0) return false;
    // Only its contents are of this layer, so it is treated as made after the whiteout.
    node.inode = implicitDirectory();
    node.layer = layer;
    return true;
  }

  #findDirectory(path: readonly string[]): DirectoryNode | undefined {
    return this.#resolve(path, () => undefined);
  }

  #makeDirectory(path: readonly string[], layer: number): DirectoryNode {
    const found = this.#resolve(path, (parent, name) => {
      if (parent.children.has(name))
        throw new LayerError(`${quoteName(path.join('/'))} leads through a file`);
      this.#budget.countNames(1);
      return this.#addChild(parent, name, { inode: implicitDirectory(), layer, children: NO_CHILDREN });
    });
    if (found === undefined) throw new LayerError(`${quoteName(path.join('/'))} cannot be made`);
    return found;
  }

  /**
   * Follows `path` and the symbolic links in it, as if the image were the root of the file system. Calls `onMissing`
   * where there is no directory: it makes one, throws, or ends the search by returning undefined.
   */
  #resolve(
    path: readonly string[],
    onMissing: (parent: DirectoryNode, name: string) => DirectoryNode | undefined,
  ): DirectoryNode | undefined {
    const pending = path.toReversed();
    const trail: DirectoryNode[] = [];
    let current = this.#root;
    let symlinks = 0;
    let steps = 0;
    for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
      this.#budget.countStep();
      if (name === '' || name === '.') continue;
      if (name === '..') {
        current = trail.pop() ?? this.#root;
        continue;
      }
      const child = current.children.get(name);
      if (child?.inode.type === 'symlink') {
        const target = child.inode.target.split('/');
        steps += target.length;
        if (++symlinks > MAX_SYMLINKS || steps > MAX_PATH_STEPS) {
          throw new LayerError(`${quoteName(path.join('/'))} leads through too many links`);
        }
        if (target[0] === '') {
          trail.length = 0;
          current = this.#root;
        }
        pending.push(...target.toReversed());
        continue;
      }
      const next = child !== undefined && isDirectory(child) ? child : onMissing(current, name);
      if (next === undefined) return undefined;
      trail.push(current);
      current = next;
    }
    return current;
  }
}

function isDriverFile(component: string): boolean {
  return component.startsWith(WHITEOUT_META) && component !== OPAQUE;
}

function isDirectory(node: Node): node is DirectoryNode {
  return node.children !== undefined;
}

function childPathBytes(parent: Node, name: string): number {
  const pathBytes = parent.pathBytes + 1 + name.length;
  // The components of symbolic links' targets were not checked before.
  if (pathBytes > MAX_PATH_BYTES || name.length > MAX_NAME_BYTES) {
    throw new LayerError(`a path that ends in ${quoteName(name)} is longer than Linux allows`);
  }
  return pathBytes;
}

/** The children as a mutable map; call it only for a directory that has some. */
function ownChildren(directory: DirectoryNode): Map<string, Node> {
  return directory.children as Map<string, Node>;
}
