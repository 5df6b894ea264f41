import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { DirectoryObjects } from './directory-objects.ts';
import type { ByteRange } from './object-store.ts';

async function openObjects(context: TestContext): Promise<{ objects: DirectoryObjects; root: string }> {
  const directory = await mkdtemp(join(tmpdir(), 'cop-objects-'));
  context.after(() => rm(directory, { recursive: true, force: true }));
  const root = join(directory, 'objects');
  return { objects: await DirectoryObjects.open(root), root };
}

async function read(objects: DirectoryObjects, key: string, range?: ByteRange): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of objects.get(key, range)) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

test('an object can be read whole or by range, and is replaced as a whole', async (context) => {
  const { objects } = await openObjects(context);
  await objects.put('a/b/c.txt', ['hello ', Buffer.from('world')]);
  assert.equal(await read(objects, 'a/b/c.txt'), 'hello world');
  assert.equal(await read(objects, 'a/b/c.txt', { start: 6 }), 'world');
  assert.equal(await read(objects, 'a/b/c.txt', { start: 1, end: 4 }), 'ell');
  assert.equal(await read(objects, 'a/b/c.txt', { start: 4, end: 4 }), '');
  assert.equal(await read(objects, 'a/b/c.txt', { start: 100 }), '');
  await objects.put('a/b/c.txt', ['new']);
  assert.equal(await read(objects, 'a/b/c.txt'), 'new');
});

test('of many concurrent putIfAbsent one wins, and its object stays unchanged', async (context) => {
  const { objects } = await openObjects(context);
  const attempts = Array.from({ length: 20 }, (_, index) => objects.putIfAbsent('lock/1', [`${index}`]));
  const won = (await Promise.all(attempts)).flatMap((isFirst, index) => (isFirst ? [`${index}`] : []));
  assert.equal(won.length, 1);
  assert.equal(await read(objects, 'lock/1'), won[0]);
  assert.equal(await objects.putIfAbsent('lock/1', ['late']), false);
  assert.equal(await read(objects, 'lock/1'), won[0]);
});

test('content that fails midway leaves the old object and no other file', async (context) => {
  const { objects, root } = await openObjects(context);
  await objects.put('log', ['old']);
  const broken = (function* () {
    yield 'half';
    throw new Error('the source broke');
  })();
  await assert.rejects(objects.put('log', broken), /the source broke/u);
  assert.equal(await read(objects, 'log'), 'old');
  assert.deepEqual(await readdir(join(root, '.incoming')), []);
});

test('open removes half-written files of an earlier process and keeps complete objects', async (context) => {
  const { objects, root } = await openObjects(context);
  await objects.put('whole', ['1']);
  await writeFile(join(root, '.incoming', 'half'), 'x');
  const again = await DirectoryObjects.open(root);
  assert.deepEqual(await readdir(join(root, '.incoming')), []);
  assert.equal(await read(again, 'whole'), '1');
});

test('a list has exactly the keys of a prefix, sorted, with sizes', async (context) => {
  const { objects, root } = await openObjects(context);
  const keys = ['a-b', 'a/b', 'a/b-c', 'a/bc/d', 'ab', 'b/c/d'];
  for (const key of keys) await objects.put(key, [key]);
  await mkdir(join(root, 'empty'));
  const list = (prefix: string) => Array.fromAsync(objects.list(prefix));
  assert.deepEqual(
    await list(''),
    keys.toSorted().map((key) => ({ key, sizeBytes: key.length })),
  );
  assert.deepEqual(
    (await list('a/b')).map(({ key }) => key),
    ['a/b', 'a/b-c', 'a/bc/d'],
  );
  assert.deepEqual(await list('nothing'), []);
});

test('a deleted object is not found, and deleting it again is not an error', async (context) => {
  const { objects } = await openObjects(context);
  await objects.put('a/b', ['1']);
  await objects.delete('a/b');
  await objects.delete('a/b');
  await objects.delete('never/was');
  await assert.rejects(read(objects, 'a/b'), { code: 'not_found' });
  await assert.rejects(read(objects, 'never/was'), { code: 'not_found' });
});

test('no key leads out of the store or to its internal files', async (context) => {
  const { objects, root } = await openObjects(context);
  const hostile = [
    '',
    '.',
    '..',
    '../x',
    'a/../../x',
    '/etc/passwd',
    'a//b',
    'a/',
    '.incoming/x',
    'a\0b',
    'a\\b',
  ];
  for (const key of [...hostile, 'é', 'a'.repeat(201), 'a/'.repeat(460) + 'a']) {
    await assert.rejects(objects.put(key, ['x']), { code: 'invalid_request' }, key);
    await assert.rejects(read(objects, key), { code: 'invalid_request' }, key);
    await assert.rejects(objects.delete(key), { code: 'invalid_request' }, key);
  }
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary' }), async (key) => {
      const isTaken = await objects.putIfAbsent(key, ['x']).then(
        () => true,
        () => false,
      );
      assert.equal(isTaken, /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/u.test(key), JSON.stringify(key));
    }),
  );
  assert.deepEqual(await readdir(join(root, '..')), ['objects']);
});
