/**
 * The family of a sandbox as a tree of sandboxes and snapshots. A snapshot hangs below the sandbox it was taken of; a
 * sandbox below the one it was forked from, or below the snapshot it was restored from while that still exists.
 */
import type { SandboxTreeNode, SnapshotInfo } from '../../../../../sdk/src/index.ts';

interface NodeBase {
  id: string;
  parent: FamilyNode | undefined;
  /** In order of creation. */
  children: FamilyNode[];
  createdAt: string;
}

export interface SandboxNode extends NodeBase {
  kind: 'sandbox';
  record: SandboxTreeNode;
}

export interface SnapshotNode extends NodeBase {
  kind: 'snapshot';
  record: SnapshotInfo;
}

export type FamilyNode = SandboxNode | SnapshotNode;

export interface Family {
  roots: FamilyNode[];
  nodes: ReadonlyMap<string, FamilyNode>;
}

interface Members {
  sandboxes: readonly SandboxTreeNode[];
  /** Those of other families are left out. */
  snapshots: readonly SnapshotInfo[];
  /** Ids of the snapshots from which sandboxes were restored, as far as they are known. */
  origins: ReadonlyMap<string, string>;
}

export function buildFamily({ sandboxes, snapshots, origins }: Members): Family {
  const nodes = new Map<string, FamilyNode>();
  for (const record of sandboxes) nodes.set(record.id, newNode({ kind: 'sandbox', record }));
  for (const record of snapshots)
    if (nodes.get(record.runId)?.kind === 'sandbox')
      nodes.set(record.id, newNode({ kind: 'snapshot', record }));
  const roots: FamilyNode[] = [];
  for (const node of nodes.values()) {
    const parent = nodes.get(parentIdOf(node, origins, nodes));
    node.parent = parent;
    (parent?.children ?? roots).push(node);
  }
  for (const { children } of nodes.values()) children.sort(byCreation);
  return { roots: roots.sort(byCreation), nodes };
}

function newNode(
  part: { kind: 'sandbox'; record: SandboxTreeNode } | { kind: 'snapshot'; record: SnapshotInfo },
): FamilyNode {
  const { id, createdAt } = part.record;
  return { ...part, id, createdAt, parent: undefined, children: [] };
}

function parentIdOf(
  node: FamilyNode,
  origins: ReadonlyMap<string, string>,
  nodes: ReadonlyMap<string, FamilyNode>,
): string {
  if (node.kind === 'snapshot') return node.record.runId;
  const { parentId } = node.record;
  const origin = nodes.get(origins.get(node.id) ?? '');
  return origin?.kind === 'snapshot' && origin.record.runId === parentId ? origin.id : (parentId ?? '');
}

function byCreation(a: FamilyNode, b: FamilyNode): number {
  if (a.createdAt !== b.createdAt) return a.createdAt < b.createdAt ? -1 : 1;
  return a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
}

export function hasEnded(node: SandboxNode): boolean {
  return node.record.endedAt !== null;
}

/** Yields all nodes below a node, each before its children. */
export function* descendantsOf(node: FamilyNode): Generator<FamilyNode> {
  const waiting = node.children.toReversed();
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    yield next;
    waiting.push(...next.children.toReversed());
  }
}

/** Yields the nodes above a node, the nearest first. */
function* ancestorsOf(node: FamilyNode): Generator<FamilyNode> {
  for (let next = node.parent; next !== undefined; next = next.parent) yield next;
}

/** Returns the snapshots to which a sandbox can return: its own, and those of its ancestors. The newest come first. */
export function findReturns(family: Family, sandbox: SandboxNode): SnapshotNode[] {
  const line = new Set([sandbox.id, ...Array.from(ancestorsOf(sandbox), ({ id }) => id)]);
  return Array.from(family.nodes.values())
    .filter((node) => node.kind === 'snapshot')
    .filter(({ record }) => line.has(record.runId))
    .sort((a, b) => byCreation(b, a));
}

/** Returns the running sandboxes that can return to a snapshot: the one it was taken of, and its descendants. */
export function findReturning(family: Family, snapshot: SnapshotNode): SandboxNode[] {
  const origin = family.nodes.get(snapshot.record.runId);
  if (origin === undefined) return [];
  return [origin, ...descendantsOf(origin)]
    .filter((node) => node.kind === 'sandbox')
    .filter(({ record }) => record.status === 'running');
}

/** Returns the sandboxes below a node that have not ended. */
export function findBelow(node: FamilyNode): SandboxNode[] {
  return Array.from(descendantsOf(node)).filter(isLive);
}

/** Returns the sandboxes that have not ended and are neither the node nor below it, nor above it with `keepAncestors`. */
export function findBeside(
  family: Family,
  node: FamilyNode,
  { keepAncestors }: { keepAncestors: boolean },
): SandboxNode[] {
  const kept = new Set<FamilyNode>([node, ...descendantsOf(node)]);
  if (keepAncestors) for (const ancestor of ancestorsOf(node)) kept.add(ancestor);
  return Array.from(family.nodes.values())
    .filter(isLive)
    .filter((one) => !kept.has(one));
}

function isLive(node: FamilyNode): node is SandboxNode {
  return node.kind === 'sandbox' && !hasEnded(node);
}
