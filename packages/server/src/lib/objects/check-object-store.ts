/**
 * Verifies what the service relies on with real writes, below a random prefix that is removed again. A store that
 * ignores a condition loses data silently, so such a server must be found before it is used.
 */
import { randomUUID } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { withDeadline } from '../waiting/deadline.ts';
import { ObjectStoreError } from './object-store-error.ts';
import type { ByteRange, ListOptions, ObjectContent, ObjectStore } from './object-store.ts';

/** Prefix of the keys of all checks. */
const CHECK_PREFIX = 'check';
const WRITERS = 8;
const PAGE_SIZE = 3;
const LISTED = 7;
/** Written in two parts: see `partBytes` of the S3 store. */
const LARGE_BYTES = 9 << 20;
const PIECE_BYTES = 1 << 20;
/** Time for the clean-up after a failure: the server may be away. */
const CLEAR_MS = 3000;
const CONDITIONS =
  'use a server that supports conditional writes (If-None-Match: *) on PutObject and CompleteMultipartUpload';

interface Check {
  name: string;
  run: (store: ObjectStore, prefix: string) => Promise<void>;
}

const CREATE_ONLY: Check = {
  name: 'create-only writes',
  run: async (store, prefix) => {
    const key = `${prefix}/create-only`;
    expect(await store.putIfAbsent(key, ['first']), 'it refused to create an object that did not exist');
    const isReplaced = await store.putIfAbsent(key, ['second']);
    expect(!isReplaced, `it did not refuse to create an object that exists; ${CONDITIONS}`);
    expect((await read(store, key)) === 'first', `it replaced an object that exists; ${CONDITIONS}`);
  },
};

const CHECKS: readonly Check[] = [
  CREATE_ONLY,
  {
    name: 'one winner among concurrent writers',
    run: (store, prefix) => race(store, `${prefix}/race`, { writers: WRITERS, build: (text) => [text] }),
  },
  {
    name: 'read after write',
    run: async (store, prefix) => {
      const key = `${prefix}/read`;
      for (const text of ['one', 'two', 'three']) {
        await store.put(key, [text]);
        expect((await read(store, key)) === text, 'a read after a write gave older content');
      }
    },
  },
  {
    name: 'ranged reads',
    run: async (store, prefix) => {
      const key = `${prefix}/range`;
      await store.put(key, ['0123456789']);
      const found = [
        await read(store, key, { start: 3, end: 6 }),
        await read(store, key, { start: 7 }),
        await read(store, key, { start: 10 }),
      ];
      expect(found.join() === '345,789,', 'a ranged read gave other bytes');
    },
  },
  { name: 'list after write, sorted, in pages', run: checkList },
  {
    name: 'deletes',
    run: async (store, prefix) => {
      const key = `${prefix}/deleted`;
      await store.put(key, ['x']);
      await store.delete(key);
      await store.delete(key);
      const isGone = await read(store, key).then(
        () => false,
        (error: unknown) => isNotFound(error),
      );
      expect(isGone, 'a deleted object can still be read');
      expect((await list(store, key)).length === 0, 'a deleted object is still listed');
    },
  },
  {
    name: 'create-only writes of large objects',
    run: async (store, prefix) => {
      const key = `${prefix}/large`;
      await race(store, key, { writers: 2, build: buildLarge });
      const isReplaced = await store.putIfAbsent(key, buildLarge('c'));
      expect(!isReplaced, `it did not refuse to create a large object that exists; ${CONDITIONS}`);
    },
  },
  {
    name: 'metadata of objects',
    run: async (store, prefix) => store.checkServer?.(`${prefix}/server`),
  },
];

/** Runs all checks. Returns their names; throws ObjectStoreError with the reason for the first that fails. */
export async function checkObjectStore(store: ObjectStore): Promise<string[]> {
  await runChecks(store, CHECKS);
  return CHECKS.map(({ name }) => name);
}

/** Checks only that the store refuses to replace an object. Throws ObjectStoreError. */
export async function checkCreateOnly(store: ObjectStore): Promise<void> {
  await runChecks(store, [CREATE_ONLY]);
}

async function runChecks(store: ObjectStore, checks: readonly Check[]): Promise<void> {
  const prefix = `${CHECK_PREFIX}/${randomUUID()}`;
  try {
    for (const { name, run } of checks) {
      await run(store, prefix).catch((error: unknown) => {
        if (error instanceof ObjectStoreError) throw error;
        const reason = error instanceof Error ? error.message : String(error);
        throw new ObjectStoreError(`the object store is unfit (${name}): ${reason}`, {
          isTransient: false,
          cause: error,
        });
      });
    }
  } catch (error) {
    // A store that fails may refuse this as well; the first reason counts.
    await withDeadline('clean-up', CLEAR_MS, clear(store, prefix)).catch(() => undefined);
    throw error;
  }
  await clear(store, prefix);
}

async function checkList(store: ObjectStore, prefix: string): Promise<void> {
  const keys = Array.from(
    { length: LISTED },
    (_, index) => `${prefix}/list/${index % 2}-${index}`,
  ).toSorted();
  for (const key of keys) await store.put(key, ['x']);
  for (const options of [{}, { pageSize: PAGE_SIZE }])
    expect(
      (await list(store, `${prefix}/list/`, options)).join() === keys.join(),
      'a list after writes misses keys, repeats them or is not sorted',
    );
}

interface Race {
  writers: number;
  build: (text: string) => ObjectContent;
}

/** Concurrent writers, each with content of its own, create one object. */
async function race(store: ObjectStore, key: string, { writers, build }: Race): Promise<void> {
  const texts = Array.from({ length: writers }, (_, index) => String.fromCodePoint(0x61 + index));
  const won = await Promise.all(texts.map((text) => store.putIfAbsent(key, build(text))));
  const winners = texts.filter((_, index) => won[index]);
  expect(
    winners.length === 1,
    `${winners.length} of ${writers} concurrent writers created one object; ${CONDITIONS}`,
  );
  const found = await read(store, key, { start: 0, end: 1 });
  expect(found === winners[0], `the object is not that of the writer that created it; ${CONDITIONS}`);
}

function* buildLarge(text: string): Generator<Uint8Array> {
  for (let size = 0; size < LARGE_BYTES; size += PIECE_BYTES) yield Buffer.alloc(PIECE_BYTES, text);
}

async function clear(store: ObjectStore, prefix: string): Promise<void> {
  for (const key of await list(store, `${prefix}/`)) await store.delete(key);
}

async function list(store: ObjectStore, prefix: string, options: ListOptions = {}): Promise<string[]> {
  return (await Array.fromAsync(store.list(prefix, options))).map(({ key }) => key);
}

async function read(store: ObjectStore, key: string, range?: ByteRange): Promise<string> {
  return Buffer.concat(await Array.fromAsync(store.get(key, range))).toString();
}

function isNotFound(error: unknown): boolean {
  return error instanceof AppError && error.code === 'not_found';
}

function expect(holds: boolean, otherwise: string): void {
  if (!holds) throw new Error(otherwise);
}
