/** Images of a stored one and a layer of a guest, with the real programs, and hostile layers. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AppError, parseImageReference, type ErrorCode } from '@coppice/contract';
import { writeTar, type LayerEntry } from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { CacheLeases } from '../../cache/cache-leases.ts';
import { assertNothingLeft, prepare, StoreSite } from '../testing/store-site.ts';
import type { ImageStore } from './image-store.ts';
import type { StoredImage } from './image-store.types.ts';
import type { LayeredBuild } from './layered-image.ts';

const MIB = 1024 ** 2;

let site: StoreSite;
before(async () => {
  site = await StoreSite.start();
  await site.push('test/base:1', {
    layers: [
      {
        entries: [
          { path: './', mode: 0o1755 },
          { path: 'kept', content: 'kept', mode: 0o4755, uid: 7 },
          { path: 'gone', content: 'x' },
          { path: 'd/' },
          { path: 'd/hidden', content: 'x' },
        ],
      },
    ],
  });
});
after(() => site.close());

async function archiveOf(entries: LayerEntry[]): Promise<Buffer> {
  const path = join(mkdtempSync(join(site.root, 'layer-')), 'layer.tar');
  await writeTar(path, entries);
  return readFileSync(path);
}

async function* chunksOf(archive: Buffer): AsyncGenerator<Buffer> {
  yield archive;
}

async function buildAbove(
  store: ImageStore,
  layer: Buffer | AsyncIterable<Buffer>,
  change: Partial<LayeredBuild> = {},
): Promise<StoredImage> {
  const base = await prepare(store, `${site.registry.name}/test/base:1`);
  return store.build({
    base: base.digest,
    organization: 'org1',
    config: { env: { A: 'b' }, user: '1000', workdir: '/d' },
    openLayer: () => (Buffer.isBuffer(layer) ? chunksOf(layer) : layer),
    maxLayerBytes: 16 * MIB,
    isKept: true,
    maxBytes: 16 * MIB,
    signal: AbortSignal.timeout(60_000),
    ...change,
  });
}

const describeImage = ({ path }: StoredImage): string =>
  execFileSync('rdsquashfs', ['--describe', path], { encoding: 'utf8' });

test('a layer adds to, changes and removes what the stored image has, and the rest stays as it was', async () => {
  await using store = await site.openStore();
  const layer = await archiveOf([
    { path: '.wh.gone' },
    { path: 'd/', mode: 0o700 },
    { path: 'd/.wh..wh..opq' },
    { path: 'd/new', content: 'new', uid: 1000 },
  ]);
  const image = await buildAbove(store, layer);
  const listed = describeImage(image);
  assert.match(listed, /^file "?kept"? 04755 7 0/mu);
  assert.match(listed, /^dir "?d"? 0700/mu);
  assert.match(listed, /^file "?d\/new"? \d+ 1000/mu);
  assert.doesNotMatch(listed, /gone|hidden/u);
  const archive = execFileSync('sqfs2tar', ['--root-becomes', '.', image.path]);
  assert.match(execFileSync('tar', ['-tv'], { input: archive, encoding: 'utf8' }), /^drwxr-xr-t .* \.\/$/mu);
  assert.deepEqual(image.config, { env: { A: 'b' }, user: '1000', workdir: '/d' });
});

test('only its organization finds an image that was built, also after a restart, and not once it is deleted', async () => {
  const directory = mkdtempSync(join(site.root, 'store-'));
  const leases = new CacheLeases();
  let digest: string;
  {
    await using store = await site.openStore({ directory, leases });
    const layer = await archiveOf([{ path: 'x' }]);
    ({ digest } = await buildAbove(store, layer));
    const other = await buildAbove(store, layer, { organization: 'org2' });
    assert.notEqual(other.digest, digest);
  }
  await using store = await site.openStore({ directory, leases });
  const reference = parseImageReference(`built/app:1@${digest}`);
  const found = await store.prepare(reference, { organization: 'org1' });
  assert.equal(found.reference, `built/app:1@${digest}`);
  await refused(store.prepare(reference, { organization: 'org2' }), 'image_not_found', /no built image/u);
  await refused(store.prepare(reference), 'image_not_found', /no built image/u);
  assert.equal(await store.release(digest), true);
  await refused(store.prepare(reference, { organization: 'org1' }), 'image_not_found', /no built image/u);
  assert.deepEqual(
    store.list().filter((image) => image.digest === digest),
    [],
  );
});

test('an image without a name is kept once it gets one, also one that is being removed, and for its organization alone', async () => {
  const directory = mkdtempSync(join(site.root, 'store-'));
  let digest: string;
  {
    await using store = await site.openStore({ directory });
    const layer = await archiveOf([{ path: 'step' }]);
    ({ digest } = await buildAbove(store, layer, { isKept: false }));
    assert.equal(store.stored.find(digest)?.isKept, false);
    assert.equal(await store.keep(digest, 'org2', true), false);
    assert.equal(store.stored.find(digest)?.isKept, false);
    await store.release(digest);
    assert.equal(await store.keep(digest, 'org1', true), true);
    const again = await buildAbove(store, layer, { isKept: false });
    assert.equal(again.digest, digest);
  }
  await using store = await site.openStore({ directory });
  const { isKept, isReleased } = store.stored.find(digest) ?? {};
  assert.deepEqual({ isKept, isReleased }, { isKept: true, isReleased: false });
  assert.equal(await store.keep(`sha256:${'0'.repeat(64)}`, 'org1', true), false);
  await store.keep(digest, 'org1', false);
  assert.equal(store.stored.find(digest)?.isKept, false);
});

async function refused(work: Promise<unknown>, code: ErrorCode, pattern: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, pattern);
    return true;
  });
}

test('a hostile layer is refused or stays inside of the image, and leaves nothing', async () => {
  const directory = mkdtempSync(join(site.root, 'store-'));
  await using store = await site.openStore({ directory });
  const refusals: [Buffer, RegExp][] = [
    [await archiveOf([{ path: '../escape', content: 'x' }]), /escape/u],
    [await archiveOf([{ path: 'kept/below', content: 'x' }]), /leads through a file/u],
    [await archiveOf([{ path: 'big', content: Buffer.alloc(17 * MIB) }]), /more than/u],
    [(await archiveOf([{ path: 'cut', content: 'x'.repeat(5000) }])).subarray(0, 2000), /cut/u],
    [Buffer.alloc(1024, 'no archive'), /./u],
  ];
  for (const [layer, pattern] of refusals) await refused(buildAbove(store, layer), 'invalid_image', pattern);
  const link = await archiveOf([
    { path: 'link', target: '/../../..', type: 'symlink' },
    { path: 'link/inside', content: 'x' },
  ]);
  assert.match(describeImage(await buildAbove(store, link)), /^file "?inside"?/mu);
  await using other = await site.openStore({
    directory: mkdtempSync(join(site.root, 'store-')),
    limits: { maxEntries: 100 },
  });
  const many = Array.from({ length: 200 }, (_, index) => ({ path: `f${index}` }));
  await refused(buildAbove(other, await archiveOf(many)), 'invalid_image', /more than 100/u);
});

test('an image over the room of its organization, and a guest that breaks off, leave nothing', async () => {
  const directory = mkdtempSync(join(site.root, 'store-'));
  await using store = await site.openStore({ directory });
  const layer = await archiveOf([{ path: 'x', content: 'x' }]);
  await refused(buildAbove(store, layer, { maxBytes: 100 }), 'capacity', /room for 100 more/u);
  async function* breaking(): AsyncGenerator<Buffer> {
    yield layer.subarray(0, 512);
    throw new AppError('guest_unreachable', 'the guest is gone');
  }
  await refused(buildAbove(store, breaking()), 'guest_unreachable', /gone/u);
  const images = [...store.stored.values()];
  assert.equal(images.length, 1, 'only the base');
  await store.stored.evict(images[0]!.digest);
  await assertNothingLeft(directory);
});
