/** Eviction of images, and the leases that prevent it. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { parseImageReference } from '@coppice/contract';
import { CacheLeases, imageKey } from '../cache/cache-leases.ts';
import { assertNothingLeft, prepare, StoreSite } from './testing/store-site.ts';

let site: StoreSite;
before(async () => {
  site = await StoreSite.start();
});
after(() => site.close());

test('an evicted image is no longer listed or found, leaves nothing, and can be prepared again', async () => {
  const directory = await mkdtemp(join(site.root, 'store-'));
  const store = await site.openStore({ directory });
  const first = await prepare(store, 'test/hello:1');
  const gone = store.stored.evict(first.digest);
  assert.deepEqual(store.list(), []);
  assert.deepEqual(await readdir(join(directory, 'images')), []);
  await gone;
  await assertNothingLeft(directory);
  const again = await prepare(store, 'test/hello:1');
  assert.equal(again.digest, first.digest);
  assert.ok(again.preparedAt > first.preparedAt);
  await store.close();
});

test('an image that was being removed when the process ended is gone at the next start', async () => {
  const directory = await mkdtemp(join(site.root, 'store-'));
  await mkdir(join(directory, 'staging', 'evicted-sha256-0'), { recursive: true });
  await using _ = await site.openStore({ directory });
  await assertNothingLeft(directory);
});

test('an image is held from before its look-up until the lease is released, also while it is prepared', async () => {
  const leases = new CacheLeases();
  await using store = await site.openStore({ leases });
  const lease = leases.open();
  const steps: boolean[] = [];
  const { digest } = await store.prepare(parseImageReference('test/hello:1'));
  const key = imageKey(digest);
  assert.equal(leases.isHeld(key), false);
  await store.stored.evict(digest);
  const onStep = () => steps.push(leases.isHeld(key));
  await store.prepare(parseImageReference('test/hello:1'), { lease, onStep });
  assert.deepEqual([steps, leases.isHeld(key)], [[false, true, true], true]);
  lease.release();
  assert.equal(leases.isHeld(key), false);
});

test('the last use of a stored image survives a restart', async () => {
  const directory = await mkdtemp(join(site.root, 'store-'));
  const store = await site.openStore({ directory });
  const { digest } = await prepare(store, 'test/hello:1');
  await store.close();
  const mark = join(directory, 'images', digest.replace(':', '-'), 'last-used');
  await writeFile(mark, '');
  await utimes(mark, 1000, 1000);
  await using second = await site.openStore({ directory });
  assert.equal(second.stored.find(digest)?.lastUse.ms, 1_000_000);
  await prepare(second, 'test/hello:1');
  assert.ok(Date.now() - (await stat(mark)).mtimeMs < 60_000);
});
