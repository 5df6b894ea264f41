import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Inode } from '../../../lib/tar/inode.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { LayerTree } from './layer-tree.ts';
import type { TarEntry } from '../../../lib/tar/tar-reader.ts';
import { TEST_LIMITS, entry, hardlink, names, symlink } from '../testing/tree-entries.ts';
import type { TreeLimits } from './tree-budget.ts';

function build(layers: readonly (readonly TarEntry[])[], limits: TreeLimits = TEST_LIMITS): LayerTree {
  const tree = new LayerTree(limits);
  for (const [layer, entries] of layers.entries()) for (const item of entries) tree.apply(item, layer);
  return tree;
}

function inodeOf(tree: LayerTree, path: string): Inode {
  for (const found of tree.walk()) if (found.path === path) return found.inode;
  throw new assert.AssertionError({ message: `${path} is not there` });
}

function assertRefused(entries: readonly TarEntry[], pattern: RegExp, limits?: TreeLimits): void {
  assert.throws(
    () => build([entries], limits),
    (error) => error instanceof LayerError && pattern.test(error.message),
  );
}

test('later layers add to earlier ones and replace their entries', () => {
  const replacement = entry('a/x');
  const tree = build([
    [entry('a/'), entry('a/x'), entry('b')],
    [replacement, entry('a/y')],
  ]);
  assert.deepEqual(names(tree), ['a', 'a/x', 'a/y', 'b']);
  assert.equal(inodeOf(tree, 'a/x').dataOffset, replacement.dataOffset);
  assert.equal(inodeOf(tree, 'a/x').layer, 1);
  assert.equal(inodeOf(tree, 'b').layer, 0);
});

test('a directory over a directory changes its metadata and keeps its contents', () => {
  const tree = build([[entry('a/'), entry('a/x')], [entry('a/', { mode: 0o700, uid: 7 })]]);
  assert.deepEqual(names(tree), ['a', 'a/x']);
  assert.equal(inodeOf(tree, 'a').mode, 0o700);
  assert.equal(inodeOf(tree, 'a').uid, 7);
});

test('a file over a directory removes its contents, and a directory replaces a file', () => {
  assert.deepEqual(names(build([[entry('a/'), entry('a/x')], [entry('a')]])), ['a']);
  assert.deepEqual(names(build([[entry('a')], [entry('a/'), entry('a/x')]])), ['a', 'a/x']);
});

test('a whiteout removes a file, a tree, or a link but not its target', () => {
  const lower = [entry('a/'), entry('a/x'), entry('d/'), entry('d/e/'), entry('d/e/f'), symlink('l', 'a')];
  const tree = build([lower, [entry('a/.wh.x'), entry('.wh.d'), entry('.wh.l'), entry('.wh.absent')]]);
  assert.deepEqual(names(tree), ['a']);
});

test('a whiteout spares the entries of its own layer, in either order', () => {
  const lower = [entry('a/'), entry('a/old'), entry('a/deep/'), entry('a/deep/old')];
  const upper = [entry('a/', { mode: 0o711 }), entry('a/new')];
  for (const layer of [
    [entry('.wh.a'), ...upper],
    [...upper, entry('.wh.a')],
  ]) {
    const tree = build([lower, layer]);
    assert.deepEqual(names(tree), ['a', 'a/new']);
    assert.equal(inodeOf(tree, 'a').mode, 0o711);
  }
});

test('a directory that only its contents imply loses the metadata that the whiteout removed', () => {
  const lower = [entry('a/', { mode: 0o700, uid: 5 }), entry('a/old')];
  for (const layer of [
    [entry('.wh.a'), entry('a/new')],
    [entry('a/new'), entry('.wh.a')],
  ]) {
    const tree = build([lower, layer]);
    assert.deepEqual(names(tree), ['a', 'a/new']);
    assert.equal(inodeOf(tree, 'a').mode, 0o755);
    assert.equal(inodeOf(tree, 'a').uid, 0);
  }
});

test('an opaque marker removes only the entries of lower layers from a directory', () => {
  const lower = [entry('a/'), entry('a/old'), entry('a/sub/'), entry('a/sub/old')];
  for (const layer of [
    [entry('a/'), entry('a/.wh..wh..opq'), entry('a/new'), entry('a/sub/new')],
    [entry('a/'), entry('a/new'), entry('a/sub/new'), entry('a/.wh..wh..opq')],
  ]) {
    assert.deepEqual(names(build([lower, layer])), ['a', 'a/new', 'a/sub', 'a/sub/new']);
  }
});

test('an opaque marker in a directory that replaces a link does not empty the target of the link', () => {
  const lower = [entry('usr/'), entry('usr/lib/'), entry('usr/lib/x'), symlink('lib', 'usr/lib')];
  const tree = build([lower, [entry('lib/'), entry('lib/.wh..wh..opq'), entry('lib/y')]]);
  assert.deepEqual(names(tree), ['lib', 'lib/y', 'usr', 'usr/lib', 'usr/lib/x']);
});

test("markers of the aufs driver's own files are ignored", () => {
  const driverFiles = [entry('.wh..wh.plnk/'), entry('.wh..wh.plnk/1'), entry('.wh..wh.aufs')];
  assert.deepEqual(names(build([[...driverFiles, entry('a')]])), ['a']);
});

test('hard links share an inode within and across layers', () => {
  const tree = build([
    [entry('a'), hardlink('b', 'a')],
    [hardlink('c', '/a'), hardlink('d', './c')],
  ]);
  const inode = inodeOf(tree, 'a');
  for (const name of ['b', 'c', 'd']) assert.equal(inodeOf(tree, name), inode);
});

test('a hard link keeps the content when its target is replaced, removed or hidden', () => {
  const old = entry('a');
  const tree = build([[old, hardlink('b', 'a')], [entry('a')]]);
  assert.equal(inodeOf(tree, 'b').dataOffset, old.dataOffset);
  assert.notEqual(inodeOf(tree, 'a').dataOffset, old.dataOffset);
  assert.deepEqual(names(build([[entry('a'), hardlink('b', 'a')], [entry('.wh.a')]])), ['b']);
  assert.deepEqual(names(build([[entry('a')], [hardlink('b', 'a'), entry('.wh.a')]])), ['b']);
});

test('a hard link of a name to itself changes nothing', () => {
  assert.deepEqual(names(build([[entry('a'), hardlink('a', 'a')]])), ['a']);
});

test('a hard link to nothing or to a directory is refused', () => {
  assertRefused([hardlink('b', 'a')], /not there/u);
  assertRefused([entry('a/'), hardlink('b', 'a')], /to a directory/u);
  assertRefused([hardlink('b', '../../etc/passwd')], /leads out/u);
});

test('links among the parents are followed inside the image', () => {
  const lower = [
    entry('usr/'),
    entry('usr/lib/'),
    symlink('lib', 'usr/lib'),
    symlink('abs', '/usr'),
    symlink('up', '../../../usr'),
  ];
  const tree = build([
    lower,
    [entry('lib/x'), entry('abs/lib/y'), entry('up/z'), entry('lib/.wh.x'), hardlink('w', 'lib/y')],
  ]);
  assert.deepEqual(names(tree), [
    'abs',
    'lib',
    'up',
    'usr',
    'usr/lib',
    'usr/lib/x',
    'usr/lib/y',
    'usr/z',
    'w',
  ]);
});

test('a dangling link as a parent makes the directory that it names', () => {
  assert.deepEqual(names(build([[symlink('a', 'b/c'), entry('a/x')]])), ['a', 'b', 'b/c', 'b/c/x']);
});

test('loops of links and links that multiply each other are refused', () => {
  assertRefused([symlink('a', 'b'), symlink('b', 'a'), entry('a/x')], /too many links/u);
  const chain = Array.from({ length: 30 }, (_, index) => symlink(`l${index + 1}`, `l${index}/../l${index}`));
  assertRefused([entry('l0/'), ...chain, entry('l30/x')], /too many links/u);
  assertRefused([symlink('a', './'.repeat(2000)), symlink('b', 'a/a/a'), entry('b/x')], /too many links/u);
});

test('missing parents are made, and a file as a parent is refused', () => {
  const tree = build([[entry('a/b/c')]]);
  assert.deepEqual(names(tree), ['a', 'a/b', 'a/b/c']);
  assert.equal(inodeOf(tree, 'a/b').type, 'directory');
  assertRefused([entry('a'), entry('a/b')], /through a file/u);
});

test('names are resolved inside the image or refused', () => {
  assert.deepEqual(names(build([[entry('/etc/x'), entry('./y'), entry('a//b/./c'), entry('a/../z')]])), [
    'a',
    'a/b',
    'a/b/c',
    'etc',
    'etc/x',
    'y',
    'z',
  ]);
  assertRefused([entry('../x')], /leads out/u);
  assertRefused([entry('/../x')], /leads out/u);
  assertRefused([entry('a/../../x')], /leads out/u);
  assertRefused([entry('a\0b')], /NUL/u);
  assertRefused([entry('x'.repeat(256))], /longer than 255/u);
  assertRefused([entry('x/'.repeat(2048))], /longer than 4095/u);
  assertRefused([symlink('a', 'x'.repeat(300)), entry('a/b')], /longer than Linux allows/u);
});

test('a tree does not grow deeper than the longest path', () => {
  const deep = 'd/'.repeat(1000);
  assertRefused(
    [entry(deep), symlink('l', deep), entry(`l/${deep}`), symlink('m', `l/${deep}`), entry(`m/${deep}`)],
    /longer than Linux/u,
  );
});

test('the root keeps its metadata and is a directory', () => {
  assert.equal(inodeOf(build([[entry('./', { mode: 0o1711, gid: 3 })]]), '').mode, 0o1711);
  assertRefused([symlink('./', 'elsewhere')], /the root is a symlink/u);
});

test('numbers and targets that no file system can store are refused', () => {
  assertRefused([entry('a', { uid: -1 })], /owner -1/u);
  assertRefused([entry('a', { gid: 2 ** 32 })], /group/u);
  assertRefused([entry('a', { type: 'character', deviceMajor: 4096 })], /device major/u);
  assertRefused([symlink('a', '')], /empty or overlong/u);
  const tree = build([
    [entry('a', { mtimeSeconds: -5 }), entry('b', { mtimeSeconds: 2 ** 40, uid: 2 ** 32 - 2 })],
  ]);
  assert.equal(inodeOf(tree, 'a').mtimeSeconds, 0);
  assert.equal(inodeOf(tree, 'b').mtimeSeconds, 2 ** 32 - 1);
  assert.equal(inodeOf(tree, 'b').uid, 2 ** 32 - 2);
});

test('attributes that would affect the guest or that squashfs cannot store are dropped', () => {
  const value = Buffer.from([1, 0xff, 0]);
  const xattrs = new Map(
    [
      'user.a',
      'security.capability',
      'trusted.x',
      'trusted.overlay.opaque',
      'system.posix_acl_access',
      'other',
    ].map((name) => [name, value] as const),
  );
  const kept = inodeOf(build([[entry('a', { xattrs })]]), 'a').xattrs;
  assert.deepEqual([...kept.keys()], ['user.a', 'security.capability', 'trusted.x']);
  assert.deepEqual(kept.get('user.a'), value);
});

test('entries, content and metadata are bounded over all layers', () => {
  assertRefused([entry('a/b/c/d')], /more than 3 entries/u, { ...TEST_LIMITS, maxEntries: 3 });
  assertRefused([entry('a', { sizeBytes: 6 }), entry('a', { sizeBytes: 6 })], /more than 10 bytes/u, {
    ...TEST_LIMITS,
    maxContentBytes: 10,
  });
  const xattrs = new Map([['user.x', Buffer.alloc(100)]]);
  assertRefused([entry('a', { xattrs })], /more than 50 bytes/u, { ...TEST_LIMITS, maxMetadataBytes: 50 });
});

test('a short name that a link expands to a long path counts as the long path', () => {
  const deep = Array.from({ length: 40 }, () => 'x'.repeat(50)).join('/');
  const files = Array.from({ length: 30 }, (_, index) => entry(`s/${index}`));
  const limits = { ...TEST_LIMITS, maxMetadataBytes: 100_000 };
  assertRefused(
    [entry(`${deep}/`), symlink('s', deep), ...files],
    /paths .* more than 100000 bytes/u,
    limits,
  );
});

test('many opaque markers, and chains of links for each entry, are refused quickly', () => {
  const limits = { ...TEST_LIMITS, maxEntries: 20_000 };
  const crowd = Array.from({ length: 10_000 }, (_, index) => entry(`d/${index}`));
  const markers = Array.from({ length: 9_000 }, () => entry('d/.wh..wh..opq'));
  const started = performance.now();
  assertRefused([...crowd, ...markers], /too many steps/u, limits);
  const chain = Array.from({ length: 39 }, (_, index) =>
    symlink(`s${index}`, `${'./'.repeat(100)}${index === 0 ? '.' : `s${index - 1}`}`),
  );
  const through = Array.from({ length: 10_000 }, (_, index) => entry(`s38/${index}`));
  assertRefused([...chain, ...through], /too many steps/u, limits);
  assert.ok(performance.now() - started < 5000);
});
