/** Behaviour of every object store, on each of them. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import dns from 'node:dns';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, mock, test } from 'node:test';
import { TestAuthority } from '../tls/testing/certificate.ts';
import { checkObjectStore } from './check-object-store.ts';
import { DirectoryObjects } from './directory-objects.ts';
import type { ByteRange, ObjectStore } from './object-store.ts';
import { S3Objects } from './s3/s3-objects.ts';
import { assertInvalidKeysRefused } from './testing/hostile-keys.ts';
import { ObjectServer } from './testing/object-server.ts';

const PART_BYTES = 5 << 20;
const limits = { partBytes: PART_BYTES, deadlineMs: 15_000 };

/** Opens a store that is empty below `prefix`. */
type OpenStore = (prefix: string, stack: AsyncDisposableStack) => Promise<ObjectStore>;

const STORES: Readonly<Record<string, OpenStore>> = {
  'a directory': async (_prefix, stack) => {
    const directory = mkdtempSync(join(tmpdir(), 'cop-objects-'));
    stack.defer(() => rmSync(directory, { recursive: true, force: true }));
    return DirectoryObjects.open(join(directory, 'objects'));
  },
  'S3 with the bucket in the path': async (prefix, stack) =>
    stack.use(S3Objects.open(plain.locate({ prefix }), limits)),
  'S3 with TLS, an authority of its own and the bucket as host name': async (prefix, stack) =>
    stack.use(
      S3Objects.open(
        secure.locate({
          prefix: `${prefix}/deeper`,
          endpoint: `https://s3.localhost:${secure.port}`,
          caPath: authority.certPath,
          isPathStyle: false,
        }),
        limits,
      ),
    ),
};

let plain: ObjectServer;
let secure: ObjectServer;
let authority: TestAuthority;

/** Resolves names below localhost, which some systems do not. */
function resolveBelowLocalhost(): void {
  const { lookup } = dns;
  mock.method(dns, 'lookup', (host: string, ...rest: [object, () => void]) =>
    lookup(host.endsWith('.localhost') ? 'localhost' : host, ...rest),
  );
}

before(async () => {
  resolveBelowLocalhost();
  plain = await ObjectServer.start();
  authority = new TestAuthority();
  const tls = authority.issue('s3', { subjectAltName: 'DNS:*.s3.localhost' });
  secure = await ObjectServer.start({ tls, virtualDomain: 's3.localhost' });
});
after(async () => {
  await plain[Symbol.asyncDispose]();
  await secure[Symbol.asyncDispose]();
  authority[Symbol.dispose]();
});

async function read(objects: ObjectStore, key: string, range?: ByteRange): Promise<string> {
  return Buffer.concat(await Array.fromAsync(objects.get(key, range))).toString();
}

async function listKeys(objects: ObjectStore, prefix: string, pageSize?: number): Promise<string[]> {
  const options = pageSize === undefined ? {} : { pageSize };
  return (await Array.fromAsync(objects.list(prefix, options))).map(({ key }) => key);
}

/** Content of several parts and a half, in pieces that do not fit into parts. */
function* buildLarge(seed: number): Generator<Uint8Array> {
  for (let piece = 0; piece < 26; piece++) yield Buffer.alloc(500_001, `${seed}-${piece};`);
}

function hash(pieces: Iterable<Uint8Array>): string {
  const sum = createHash('sha256');
  for (const piece of pieces) sum.update(piece);
  return sum.digest('hex');
}

for (const [name, open] of Object.entries(STORES)) {
  describe(`objects in ${name}`, () => {
    let objects: ObjectStore;
    const stack = new AsyncDisposableStack();
    before(async () => {
      objects = await open('some/prefix', stack);
    });
    after(() => stack.disposeAsync());

    test('an object can be read whole or by range, and is replaced as a whole', async () => {
      await objects.put('read/b/c.txt', ['hello ', Buffer.from('world')]);
      assert.equal(await read(objects, 'read/b/c.txt'), 'hello world');
      assert.equal(await read(objects, 'read/b/c.txt', { start: 6 }), 'world');
      assert.equal(await read(objects, 'read/b/c.txt', { start: 1, end: 4 }), 'ell');
      assert.equal(await read(objects, 'read/b/c.txt', { start: 6, end: 1000 }), 'world');
      assert.equal(await read(objects, 'read/b/c.txt', { start: 4, end: 4 }), '');
      assert.equal(await read(objects, 'read/b/c.txt', { start: 100 }), '');
      await objects.put('read/b/c.txt', ['new']);
      assert.equal(await read(objects, 'read/b/c.txt'), 'new');
    });

    test('an empty object exists', async () => {
      await objects.put('empty', []);
      assert.equal(await read(objects, 'empty'), '');
      assert.equal(await read(objects, 'empty', { start: 0, end: 5 }), '');
      assert.equal(await objects.putIfAbsent('empty', ['x']), false);
    });

    test('of many concurrent putIfAbsent one wins, and its object stays unchanged', async () => {
      const attempts = Array.from({ length: 20 }, (_, index) => objects.putIfAbsent('lock/1', [`${index}`]));
      const won = (await Promise.all(attempts)).flatMap((isFirst, index) => (isFirst ? [`${index}`] : []));
      assert.equal(won.length, 1);
      assert.equal(await read(objects, 'lock/1'), won[0]);
      assert.equal(await objects.putIfAbsent('lock/1', ['late']), false);
      assert.equal(await read(objects, 'lock/1'), won[0]);
    });

    test('a large object is written from a stream and read back, whole and by range', async () => {
      await objects.put('large/1', buildLarge(1));
      assert.equal(hash(await Array.fromAsync(objects.get('large/1'))), hash(buildLarge(1)));
      const start = PART_BYTES - 100;
      const whole = Buffer.concat([...buildLarge(1)]);
      const part = Buffer.concat(await Array.fromAsync(objects.get('large/1', { start, end: start + 200 })));
      assert.deepEqual(part, whole.subarray(start, start + 200));
      assert.deepEqual(await Array.fromAsync(objects.list('large/')), [
        { key: 'large/1', sizeBytes: whole.length },
      ]);
    });

    test('of concurrent putIfAbsent of large objects one wins', async () => {
      const won = await Promise.all([1, 2, 3].map((seed) => objects.putIfAbsent('race/1', buildLarge(seed))));
      assert.equal(won.filter(Boolean).length, 1, JSON.stringify(won));
      const seed = won.indexOf(true) + 1;
      assert.equal(hash(await Array.fromAsync(objects.get('race/1'))), hash(buildLarge(seed)));
      assert.equal(await objects.putIfAbsent('race/1', buildLarge(4)), false);
      assert.equal(hash(await Array.fromAsync(objects.get('race/1'))), hash(buildLarge(seed)));
    });

    test('content that fails midway leaves the old object, small or large', async () => {
      await objects.put('log', ['old']);
      for (const pieces of [['half'], [...buildLarge(1)]]) {
        const broken = (function* () {
          yield* pieces;
          throw new Error('the source broke');
        })();
        await assert.rejects(objects.put('log', broken), /^Error: the source broke$/u);
        assert.equal(await read(objects, 'log'), 'old');
      }
    });

    test('a list has exactly the keys of a prefix, sorted, with sizes, also in pages', async () => {
      const keys = ['a-b', 'a/b-c', 'a/bc/d', 'a/bd', 'ab', 'b/c/d'].map((key) => `list/${key}`);
      for (const key of keys) await objects.put(key, [key]);
      assert.deepEqual(
        await Array.fromAsync(objects.list('list/')),
        keys.toSorted().map((key) => ({ key, sizeBytes: key.length })),
      );
      assert.deepEqual(await listKeys(objects, 'list/', 2), keys.toSorted());
      assert.deepEqual(await listKeys(objects, 'list/a/b'), ['list/a/b-c', 'list/a/bc/d', 'list/a/bd']);
      assert.deepEqual(await listKeys(objects, 'nothing'), []);
      const all = await listKeys(objects, '');
      assert.deepEqual(all, all.toSorted());
    });

    test('a deleted object is not found, and deleting it again is not an error', async () => {
      await objects.put('deleted/b', ['1']);
      await objects.delete('deleted/b');
      await objects.delete('deleted/b');
      await objects.delete('never/was');
      await assert.rejects(read(objects, 'deleted/b'), { code: 'not_found' });
      await assert.rejects(read(objects, 'never/was'), { code: 'not_found' });
      await assert.rejects(read(objects, 'never/was', { start: 1 }), { code: 'not_found' });
      assert.deepEqual(await listKeys(objects, 'deleted/'), []);
    });

    test('a reader that leaves early does not disturb the store', async () => {
      await objects.put('left', buildLarge(2));
      for await (const piece of objects.get('left')) {
        assert.ok(piece.length > 0);
        break;
      }
      assert.equal((await read(objects, 'left', { start: 0, end: 4 })).length, 4);
    });

    test('no key leads out of the store', async () => {
      await assertInvalidKeysRefused(objects);
    });

    test('it passes the check of its conditions, which leaves nothing behind', async () => {
      assert.equal((await checkObjectStore(objects)).length, 8);
      assert.deepEqual(await listKeys(objects, 'check/'), []);
    });
  });
}
