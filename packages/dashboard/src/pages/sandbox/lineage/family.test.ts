import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxTreeNode, SnapshotInfo } from '../../../../../sdk/src/index.ts';
import {
  buildFamily,
  descendantsOf,
  findBelow,
  findBeside,
  findReturning,
  findReturns,
  type Family,
  type SandboxNode,
  type SnapshotNode,
} from './family.ts';

const at = (second: number): string => new Date(1_700_000_000_000 + second * 1000).toISOString();

function sandbox(
  id: string,
  parentId: string | null,
  second: number,
  endedAt: number | null = null,
): SandboxTreeNode {
  const status = endedAt === null ? 'running' : 'destroyed';
  return { id, parentId, status, createdAt: at(second), endedAt: endedAt === null ? null : at(endedAt) };
}

function snapshot(id: string, runId: string, second: number): SnapshotInfo {
  return {
    id,
    runId,
    name: null,
    image: 'image:1',
    vcpus: 1,
    memMiB: 256,
    diskMiB: 1024,
    sizeBytes: 1,
    boundTo: {},
    createdAt: at(second),
    expiresAt: null,
    disk: null,
  };
}

/**
 *     a ─┬─ snap ── restored
 *        ├─ b ─┬─ b1 (ended) ── b11
 *        │     └─ b2
 *        └─ c
 */
const FAMILY = buildFamily({
  sandboxes: [
    sandbox('a', null, 0),
    sandbox('b', 'a', 2),
    sandbox('c', 'a', 3),
    sandbox('b1', 'b', 4, 9),
    sandbox('b2', 'b', 5),
    sandbox('b11', 'b1', 6),
    sandbox('restored', 'a', 7),
  ],
  snapshots: [snapshot('snap', 'a', 1), snapshot('foreign', 'other', 1)],
  origins: new Map([['restored', 'snap']]),
});

const sandboxIn = (family: Family, id: string): SandboxNode => {
  const node = family.nodes.get(id);
  assert.equal(node?.kind, 'sandbox');
  return node;
};
const snapshotIn = (family: Family, id: string): SnapshotNode => {
  const node = family.nodes.get(id);
  assert.equal(node?.kind, 'snapshot');
  return node;
};
const ids = (nodes: Iterable<{ id: string }>): string[] => Array.from(nodes, ({ id }) => id);

test('children are in order of creation, and a restored sandbox hangs below its snapshot', () => {
  assert.deepEqual(ids(FAMILY.roots), ['a']);
  assert.deepEqual(ids(descendantsOf(sandboxIn(FAMILY, 'a'))), [
    'snap',
    'restored',
    'b',
    'b1',
    'b11',
    'b2',
    'c',
  ]);
});

test('snapshots of other families are left out', () => {
  assert.equal(FAMILY.nodes.has('foreign'), false);
});

test('a restored sandbox whose snapshot is gone hangs below the sandbox it was taken of', () => {
  const family = buildFamily({
    sandboxes: [sandbox('a', null, 0), sandbox('restored', 'a', 7)],
    snapshots: [],
    origins: new Map([['restored', 'snap']]),
  });
  assert.equal(sandboxIn(family, 'restored').parent?.id, 'a');
});

test('a snapshot of another sandbox than the parent is no origin', () => {
  const family = buildFamily({
    sandboxes: [sandbox('a', null, 0), sandbox('b', 'a', 1), sandbox('c', 'a', 2)],
    snapshots: [snapshot('snap', 'b', 3)],
    origins: new Map([['c', 'snap']]),
  });
  assert.equal(sandboxIn(family, 'c').parent?.id, 'a');
});

test('a sandbox returns to its own snapshots and those of its ancestors, not to those of its children', () => {
  const family = buildFamily({
    sandboxes: [sandbox('a', null, 0), sandbox('b', 'a', 1), sandbox('c', 'b', 2), sandbox('d', 'a', 3)],
    snapshots: [snapshot('of-a', 'a', 4), snapshot('of-b', 'b', 5), snapshot('of-c', 'c', 6)],
    origins: new Map(),
  });
  assert.deepEqual(ids(findReturns(family, sandboxIn(family, 'b'))), ['of-b', 'of-a']);
  assert.deepEqual(ids(findReturns(family, sandboxIn(family, 'c'))), ['of-c', 'of-b', 'of-a']);
  assert.deepEqual(ids(findReturns(family, sandboxIn(family, 'd'))), ['of-a']);
});

test('only running sandboxes return to a snapshot, also those that were restored from it', () => {
  assert.deepEqual(ids(findReturning(FAMILY, snapshotIn(FAMILY, 'snap'))), [
    'a',
    'restored',
    'b',
    'b11',
    'b2',
    'c',
  ]);
});

test('what is below a node has all generations and no ended sandbox', () => {
  assert.deepEqual(ids(findBelow(sandboxIn(FAMILY, 'b'))), ['b11', 'b2']);
  assert.deepEqual(ids(findBelow(snapshotIn(FAMILY, 'snap'))), ['restored']);
});

test('what is beside a branch has neither its members nor, if they are kept, its ancestors', () => {
  const beside = (id: string, keepAncestors: boolean): string[] =>
    ids(findBeside(FAMILY, sandboxIn(FAMILY, id), { keepAncestors })).sort();
  assert.deepEqual(beside('b', true), ['c', 'restored']);
  assert.deepEqual(beside('b', false), ['a', 'c', 'restored']);
  assert.deepEqual(beside('b2', true), ['b11', 'c', 'restored']);
  assert.deepEqual(beside('a', true), []);
});

test('a chain of a thousand generations is walked without recursion', () => {
  const family = buildFamily({
    sandboxes: Array.from({ length: 1000 }, (_, index) =>
      sandbox(`n${index}`, index === 0 ? null : `n${index - 1}`, index),
    ),
    snapshots: [],
    origins: new Map(),
  });
  assert.equal(findBelow(sandboxIn(family, 'n0')).length, 999);
});
