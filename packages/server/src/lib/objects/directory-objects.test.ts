import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { DirectoryObjects } from './directory-objects.ts';
import { assertInvalidKeysRefused } from './testing/hostile-keys.ts';
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

test('no key leads out of the store or to its internal files', async (context) => {
  const { objects, root } = await openObjects(context);
  await assertInvalidKeysRefused(objects);
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
