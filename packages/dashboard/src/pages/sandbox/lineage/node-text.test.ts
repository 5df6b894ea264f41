import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { buildFamily, type FamilyNode } from './family.ts';
import { nameOf, noteName, type LiveRecords } from './node-text.ts';

const CREATED = '2026-11-01T00:00:00.000Z';
const { roots } = buildFamily({
  sandboxes: [{ id: 'run1', status: 'running', parentId: null, createdAt: CREATED, endedAt: null }],
  snapshots: [],
  origins: new Map(),
});
const [node] = roots as [FamilyNode];

function liveWith(name: string | null): LiveRecords {
  return new Map([['run1', { id: 'run1', name } as SandboxInfo]]);
}

test('a sandbox is called by its name, also after its end, else by its id', () => {
  assert.equal(nameOf(node, new Map()), 'run1');
  assert.equal(nameOf(node, liveWith('first')), 'first');
  assert.equal(nameOf(node, new Map()), 'first');
  noteName({ id: 'run1', name: 'second' });
  assert.equal(nameOf(node, new Map()), 'second');
  assert.equal(nameOf(node, liveWith(null)), 'run1');
  assert.equal(nameOf(node, new Map()), 'run1');
});

test('characters that could disguise a name are shown', () => {
  assert.equal(nameOf(node, liveWith('a\u202eb')), String.raw`a\u202Eb`);
});
