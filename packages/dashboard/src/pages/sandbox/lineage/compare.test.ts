import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileEntry, SandboxInfo } from '../../../../../sdk/src/index.ts';
import { compareFacts, compareFiles, listBelow } from './compare.ts';

const SANDBOX: SandboxInfo = {
  id: 'run1',
  status: 'running',
  name: null,
  teamId: null,
  image: 'image:1',
  region: 'us',
  vcpus: 1,
  memMiB: 512,
  diskMiB: 1024,
  createMs: 1,
  createdAt: '2026-11-01T00:00:00.000Z',
  endedAt: null,
  hibernatedAt: null,
  billedMs: 0,
  runningSince: null,
  timeout: 300,
  endsAt: null,
  expiresAt: null,
  maxLifetime: null,
  autoHibernate: false,
  cwd: null,
  disk: null,
  labels: { job: 'a' },
  parentId: null,
  auditKeyId: null,
  statusReason: null,
  operation: null,
};

function entry(path: string, part: Partial<FileEntry> = {}): FileEntry {
  const name = path.slice(path.lastIndexOf('/') + 1);
  const mtime = '2026-11-01T00:00:00.000Z';
  return { name, path, type: 'file', size: 1, mode: '0644', mtime, target: null, ...part };
}

test('the facts that differ are marked, a missing label as well', () => {
  const other = { ...SANDBOX, id: 'run2', timeout: 0, labels: { job: 'a', step: '2' } };
  const facts = compareFacts(
    { kind: 'sandbox', record: SANDBOX },
    { kind: 'sandbox', record: other },
    Date.now(),
  );
  assert.deepEqual(
    facts.filter(({ isDifferent }) => isDifferent).map(({ name, left, right }) => [name, left, right]),
    [
      ['Idle timeout', '5 min', '—'],
      ['Label step', '—', '2'],
    ],
  );
});

test('files are added, removed, or changed in size, time, mode, target or type', () => {
  const left = new Map([
    ['same', entry('/w/same')],
    ['gone', entry('/w/gone')],
    ['size', entry('/w/size')],
    ['time', entry('/w/time')],
    ['mode', entry('/w/mode')],
    ['link', entry('/w/link', { type: 'symlink', target: 'a' })],
    ['dir', entry('/w/dir', { type: 'dir' })],
  ]);
  const right = new Map([
    ['same', entry('/w/same')],
    ['new', entry('/w/new')],
    ['size', entry('/w/size', { size: 2 })],
    ['time', entry('/w/time', { mtime: '2026-11-02T00:00:00.000Z' })],
    ['mode', entry('/w/mode', { mode: '0600' })],
    ['link', entry('/w/link', { type: 'symlink', target: 'b' })],
    ['dir', entry('/w/dir', { type: 'dir', size: 9, mtime: '2026-11-02T00:00:00.000Z' })],
  ]);
  assert.deepEqual(
    compareFiles(left, right).map(({ path, kind }) => [path, kind]),
    [
      ['gone', 'removed'],
      ['link', 'changed'],
      ['mode', 'changed'],
      ['new', 'added'],
      ['size', 'changed'],
      ['time', 'changed'],
    ],
  );
});

const TREE: Readonly<Record<string, FileEntry[]>> = {
  '/w/': [entry('/w/a'), entry('/w/d', { type: 'dir' }), entry('/w/e', { type: 'dir' })],
  '/w/d': [entry('/w/d/b')],
  '/w/e': [entry('/w/e/c')],
};
const list = async (path: string): Promise<FileEntry[]> => TREE[path] ?? [];

test('a directory is listed with everything below it, by paths from there', async () => {
  const { entries, isCut } = await listBelow(list, '/w/', { directories: 3, entries: 10 });
  assert.deepEqual(Array.from(entries.keys()), ['a', 'd', 'e', 'd/b', 'e/c']);
  assert.equal(isCut, false);
});

test('a listing beyond its limits says that it is not complete', async () => {
  assert.equal((await listBelow(list, '/w/', { directories: 2, entries: 10 })).isCut, true);
  const cut = await listBelow(list, '/w/', { directories: 9, entries: 4 });
  assert.deepEqual([cut.entries.size, cut.isCut], [4, true]);
});

test('the root directory is listed by paths without a slash in front', async () => {
  const { entries } = await listBelow(async () => [entry('/etc')], '/', { directories: 9, entries: 9 });
  assert.deepEqual(Array.from(entries.keys()), ['etc']);
});
