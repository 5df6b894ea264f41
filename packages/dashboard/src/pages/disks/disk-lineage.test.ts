import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DiskInfo } from '../../../../sdk/src/index.ts';
import { buildLineage, type DiskNode } from './disk-lineage.ts';

function disk(name: string, parent: string | null, day = 1): DiskInfo {
  return {
    name,
    parent,
    teamId: 'team1',
    status: 'available',
    sizeGb: 1,
    storedBytes: 0,
    attachedTo: null,
    durability: 'local',
    drainedVersion: 1,
    dirtyBytes: 0,
    drainedAt: '2026-11-01T00:00:00.000Z',
    waitsFor: null,
    createdAt: `2026-11-0${day}T00:00:00.000Z`,
  };
}

function shape({ name, forks }: DiskNode): unknown {
  return forks.length === 0 ? name : { [name]: forks.map(shape) };
}

test('the lineage of a disk begins at its oldest ancestor and has all forks, oldest first', () => {
  const disks = [disk('c', 'b'), disk('d', 'a', 3), disk('b', 'a', 2), disk('a', null), disk('other', null)];
  for (const name of ['a', 'b', 'c', 'd'])
    assert.deepEqual(shape(buildLineage(disks, name)), { a: [{ b: ['c'] }, 'd'] });
  assert.equal(shape(buildLineage(disks, 'other')), 'other');
});

test('a parent that is not in the list is a node without a disk', () => {
  const tree = buildLineage([disk('b', 'gone'), disk('c', 'gone', 2)], 'b');
  assert.equal(tree.disk, undefined);
  assert.deepEqual(shape(tree), { gone: ['b', 'c'] });
});

test('a circle of parents, from names that were used again, ends', () => {
  const disks = [disk('a', 'b'), disk('b', 'a')];
  assert.deepEqual(shape(buildLineage(disks, 'a')), { b: ['a'] });
  assert.deepEqual(shape(buildLineage([disk('a', 'a')], 'a')), 'a');
});
