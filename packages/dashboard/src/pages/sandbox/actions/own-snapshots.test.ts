import assert from 'node:assert/strict';
import { test } from 'node:test';
import type {
  Coppice,
  Sandbox,
  SandboxInfo,
  SandboxTreeNode,
  SnapshotInfo,
} from '../../../../../sdk/src/index.ts';
import { fits, listAncestry, listOwnSnapshots } from './own-snapshots.ts';

const SIZE = { vcpus: 1, memMiB: 512, diskMiB: 4096 };

function node(id: string, parentId: string | null): SandboxTreeNode {
  return { id, parentId, status: 'running', createdAt: '', endedAt: null };
}

const TREE = [node('a', null), node('b', 'a'), node('c', 'b'), node('sibling', 'a')];

function snapshot(id: string, runId: string, part: Partial<SnapshotInfo> = {}): SnapshotInfo {
  return { id, runId, ...SIZE, createdAt: id, ...part } as SnapshotInfo;
}

test('the ancestry leads from the sandbox to its root, without siblings and without circles', () => {
  assert.deepEqual(listAncestry(TREE, 'c'), ['c', 'b', 'a']);
  assert.deepEqual(listAncestry([], 'x'), ['x']);
  assert.deepEqual(listAncestry([node('a', 'b'), node('b', 'a')], 'a'), ['a', 'b']);
});

test('only a snapshot of the same size fits', () => {
  const record = SIZE as SandboxInfo;
  assert.equal(fits(snapshot('s', 'a'), record), true);
  for (const part of [{ vcpus: 2 }, { memMiB: 1024 }, { diskMiB: 64 }])
    assert.equal(fits(snapshot('s', 'a', part), record), false);
});

test('a rollback offers the snapshots of the sandbox and of its ancestors, newest first', async () => {
  const all = [
    snapshot('1', 'a'),
    snapshot('2', 'sibling'),
    snapshot('3', 'b', { memMiB: 64 }),
    snapshot('4', 'c'),
    snapshot('5', 'b'),
  ];
  const list = async ({ runId }: { runId: string }) => all.filter((one) => one.runId === runId);
  const client = { snapshots: { list } } as unknown as Coppice;
  const sandbox = { id: 'c', record: SIZE, tree: async () => ({ nodes: TREE }) } as unknown as Sandbox;
  const found = await listOwnSnapshots(client, sandbox, new AbortController().signal);
  assert.deepEqual(
    found.map(({ id }) => id),
    ['5', '4', '1'],
  );
});
