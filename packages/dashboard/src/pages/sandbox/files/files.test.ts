import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileEntry } from '../../../../../sdk/src/index.ts';
import { findRasterType, looksLikeText } from './file-content.ts';
import { describeMode } from './file-mode.ts';
import { orderFiles } from './order-files.ts';
import { archiveNameOf, findNameFault, joinPath, listCrumbs, nameOf, parentOf } from './paths.ts';

const bytesOf = (text: string): Uint8Array => Uint8Array.from(text, (char) => char.charCodeAt(0));

test('paths are joined and taken apart, also at the root and with odd names', () => {
  assert.equal(joinPath('/', 'a'), '/a');
  assert.equal(joinPath('/a b/', '..\n'), '/a b/..\n');
  assert.equal(parentOf('/a/b/'), '/a');
  assert.equal(parentOf('/a'), '/');
  assert.equal(parentOf('/'), '/');
  assert.equal(nameOf('/a/b%2f'), 'b%2f');
  assert.deepEqual(listCrumbs('/'), [{ name: '/', path: '/' }]);
  assert.deepEqual(listCrumbs('/a//b/'), [
    { name: '/', path: '/' },
    { name: 'a', path: '/a' },
    { name: 'b', path: '/a/b' },
  ]);
});

test('names that the kernel refuses are found before they are sent', () => {
  for (const name of ['a/b', '.', '..', 'a\0', 'ü'.repeat(128)])
    assert.notEqual(findNameFault(name), undefined, name);
  for (const name of ['', '...', 'a\nb', '<b>', 'ü'.repeat(127)])
    assert.equal(findNameFault(name), undefined, name);
});

test('the archive of a directory has a name that any system accepts', () => {
  assert.equal(archiveNameOf('dist'), 'dist.tar.gz');
  assert.equal(archiveNameOf('a\nb/<c>\u202E'), 'a_b__c__.tar.gz');
  assert.equal(archiveNameOf('...'), 'folder.tar.gz');
  assert.equal(archiveNameOf('ü'.repeat(120)), `${'ü'.repeat(50)}.tar.gz`);
});

test('permissions are written as ls writes them', () => {
  assert.equal(describeMode('0644', 'file'), '-rw-r--r--');
  assert.equal(describeMode('4755', 'file'), '-rwsr-xr-x');
  assert.equal(describeMode('2640', 'file'), '-rw-r-S---');
  assert.equal(describeMode('1777', 'dir'), 'drwxrwxrwt');
  assert.equal(describeMode('1776', 'dir'), 'drwxrwxrwT');
  assert.equal(describeMode('rw', 'file'), 'rw');
});

const entry = (name: string, changes: Partial<FileEntry> = {}): FileEntry => ({
  name,
  path: `/${name}`,
  type: 'file',
  size: 1,
  mode: '0644',
  mtime: '2026-11-27T06:30:00.000Z',
  target: null,
  ...changes,
});
const entries = [
  entry('file10', { size: 5 }),
  entry('file9', { size: 9, mtime: '2026-11-28T06:30:00.000Z' }),
  entry('zoo', { type: 'dir' }),
  entry('Attic', { type: 'dir' }),
];
const ordered = (order: 'name' | 'size' | 'newest', search = ''): string[] =>
  orderFiles(entries, { order, search }).map(({ name }) => name);

test('directories come first, and numbers in names count as numbers', () => {
  assert.deepEqual(ordered('name'), ['Attic', 'zoo', 'file9', 'file10']);
  assert.deepEqual(ordered('size'), ['Attic', 'zoo', 'file9', 'file10']);
  assert.deepEqual(ordered('newest').at(-2), 'file9');
  assert.deepEqual(ordered('name', 'FILE1'), ['file10']);
});

test('images are known by their bytes, and only kinds that cannot contain scripts', () => {
  assert.equal(findRasterType(bytesOf('\x89PNG\r\n\x1a\n…')), 'image/png');
  assert.equal(findRasterType(bytesOf('\xff\xd8\xff\xe0')), 'image/jpeg');
  assert.equal(findRasterType(bytesOf('GIF89a')), 'image/gif');
  assert.equal(findRasterType(bytesOf('RIFF\0\0\0\0WEBPVP8 ')), 'image/webp');
  assert.equal(findRasterType(bytesOf('\0\0\0\x20ftypavif')), 'image/avif');
  for (const text of ['<svg onload="alert(1)">', '<html>', '', 'RIFF', '\x89PN'])
    assert.equal(findRasterType(bytesOf(text)), undefined, text);
});

test('text is distinguished from other content, also where the sample ends inside a character', () => {
  assert.equal(looksLikeText(new TextEncoder().encode(`${'a'.repeat(8191)}ü`)), true);
  assert.equal(looksLikeText(bytesOf('\x1b[31mred\x1b[0m\r\n')), true);
  assert.equal(looksLikeText(new Uint8Array()), true);
  assert.equal(looksLikeText(bytesOf('ELF\0\x01')), false);
  assert.equal(looksLikeText(bytesOf('\xff\xfe\xfd\xfc text')), false);
});
