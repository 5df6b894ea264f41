/** Images of a stored one and a layer of a guest, with the real programs, and hostile layers. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, parseImageReference, type ErrorCode } from '@coppice/contract';
import { writeTar, type LayerEntry } from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { pino } from 'pino';
import type { OwnedImagesQuery } from '../../../lib/protocol/runner-protocol.ts';
import { CacheLeases, imageKey } from '../../cache/cache-leases.ts';
import { assertNothingLeft, prepare, StoreSite } from '../testing/store-site.ts';
import { makeUnpacking } from '../testing/unpacking.ts';
import type { ImageStore } from './image-store.ts';
import type { StoredImage } from './image-store.types.ts';
import type { LayeredBuild } from './layered-image.ts';
import { listOwned } from './owned-images.ts';
import { StoredImages } from './stored-images.ts';

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
    owner: { organization: 'org1', build: 'build1' },
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
    const again = await buildAbove(store, layer);
    assert.notEqual(again.digest, digest, 'no two builds share an image, not even of the same content');
  }
  await using store = await site.openStore({ directory, leases });
  const reference = parseImageReference(`built/app:1@${digest}`);
  const found = await store.prepare(reference, { organization: 'org1' });
  assert.equal(found.reference, `built/app:1@${digest}`);
  await refused(store.prepare(reference, { organization: 'org2' }), 'image_not_found', /no built image/u);
  await refused(store.prepare(reference), 'image_not_found', /no built image/u);
  assert.equal(await store.release(digest), true);
  await refused(store.prepare(reference, { organization: 'org1' }), 'image_not_found', /no built image/u);
});

test('images that were built are in a list of their own, by organization and build, with what holds their files', async () => {
  const leases = new CacheLeases();
  const directory = mkdtempSync(join(site.root, 'store-'));
  await using store = await site.openStore({ directory, leases });
  const layer = await archiveOf([{ path: 'x' }]);
  const first = await buildAbove(store, layer);
  const second = await buildAbove(store, layer, {
    owner: { organization: 'org1', build: 'build2' },
    isKept: false,
  });
  const other = await buildAbove(store, layer, { owner: { organization: 'org2', build: 'build3' } });
  assert.deepEqual(
    store.list().map(({ reference }) => reference.replace(/^.*\/|@.*$/gu, '')),
    ['base:1'],
  );
  const list = async (asked: OwnedImagesQuery): Promise<string[]> =>
    (await store.listOwned(asked)).images.map(({ digest }) => digest);
  const all = [first, second, other].map(({ digest }) => digest).toSorted();
  assert.deepEqual(await list({}), all);
  assert.deepEqual(await list({ after: all[0] }), all.slice(1));
  assert.deepEqual(await list({ build: 'build2' }), [second.digest]);
  assert.deepEqual(await list({ organization: 'org2', build: 'build2' }), []);
  const show = async (): Promise<unknown> => {
    const { images } = await store.listOwned({ organization: 'org1' });
    return Object.fromEntries(
      images.map(({ digest, owner, isKept, isReleased, isLinked }) => [
        digest,
        { ...owner, isKept, isReleased, isLinked },
      ]),
    );
  };
  const org1 = { organization: 'org1', isReleased: false, isLinked: false };
  const shown = {
    [first.digest]: { ...org1, build: 'build1', isKept: true },
    [second.digest]: { ...org1, build: 'build2', isKept: false },
  };
  assert.deepEqual(await show(), shown);
  linkSync(first.path, join(site.root, 'capture'));
  await store.release(first.digest);
  using lease = leases.open();
  lease.add(imageKey(second.digest));
  assert.deepEqual(await show(), {
    [first.digest]: { ...shown[first.digest], isReleased: true, isLinked: true },
    [second.digest]: { ...shown[second.digest], isLinked: true },
  });
});

test('the list of built images has pages', async () => {
  const images = await StoredImages.open(mkdtempSync(join(site.root, 'store-')), pino({ level: 'silent' }));
  const made = 501;
  for (let number = 0; number < made; number += 1) {
    const { path } = await images.makeStaging();
    writeFileSync(join(path, 'image.squashfs'), 'x');
    await images.publish(path, {
      digest: `sha256:${String((number * 7919) % made).padStart(64, '0')}`,
      sizeBytes: 1,
      config: { env: {}, user: '', workdir: '' },
      reference: { name: `built/image@${number}`, isAnonymous: false },
      owner: { organization: 'org', build: number % 2 === 0 ? 'even' : 'odd' },
    });
  }
  const count = async (asked: OwnedImagesQuery): Promise<[number, string | undefined]> => {
    const page = await listOwned(images, new CacheLeases(), asked);
    return [page.images.length, page.next];
  };
  const last = `sha256:${'499'.padStart(64, '0')}`;
  assert.deepEqual(await count({}), [500, last]);
  assert.deepEqual(await count({ after: last }), [1, undefined]);
  assert.deepEqual(await count({ build: 'even' }), [251, undefined]);
});

test('a caller that leaves when its image is made, or is being published, gets none', async () => {
  const leaving = new AbortController();
  const unpacking = await makeUnpacking();
  const enclose: typeof unpacking.enclose = async () => ({
    cgroups: [],
    // Runs when the image is made.
    release: async () => leaving.abort(new Error('left')),
  });
  const layer = await archiveOf([{ path: 'x' }]);
  {
    await using store = await site.openStore();
    await prepare(store, `${site.registry.name}/test/base:1`);
    const directory = mkdtempSync(join(site.root, 'store-'));
    cpSync(dirname(dirname(dirname([...store.stored.values()][0]!.path))), directory, { recursive: true });
    await using late = await site.openStore({ directory, unpacking: { ...unpacking, enclose } });
    await assert.rejects(buildAbove(late, layer, { signal: leaving.signal }), /left/u);
    assert.deepEqual((await late.listOwned({})).images, []);
  }
  let sweeps = 0;
  await using store = await site.openStore({ onStored: () => (sweeps += 1) });
  const second = new AbortController();
  await prepare(store, `${site.registry.name}/test/base:1`);
  const publish = store.stored.publish.bind(store.stored);
  store.stored.publish = async (...image) => {
    second.abort(new Error('left late'));
    return publish(...image);
  };
  sweeps = 0;
  await assert.rejects(buildAbove(store, layer, { signal: second.signal }), /left late/u);
  const { images } = await store.listOwned({});
  assert.deepEqual([images.length, images[0]?.isReleased, sweeps], [1, true, 1]);
});

/** A layer that comes when the test says so. */
class SlowLayer {
  readonly opened = Promise.withResolvers<void>();
  readonly #rest = Promise.withResolvers<Buffer>();
  readonly #layer: Buffer;

  constructor(layer: Buffer) {
    this.#layer = layer;
  }

  open = async function* (this: SlowLayer): AsyncGenerator<Buffer> {
    this.opened.resolve();
    yield this.#layer.subarray(0, 100);
    yield await this.#rest.promise;
  }.bind(this);

  end(): void {
    this.#rest.resolve(this.#layer.subarray(100));
  }
}

test('a slow guest holds up no image and no other organization, but the builds of its own', async () => {
  await using store = await site.openStore({
    limits: { maxConcurrentPreparations: 1, maxWaitingPreparations: 4 },
  });
  const layer = await archiveOf([{ path: 'x' }]);
  await prepare(store, `${site.registry.name}/test/base:1`);
  const start = (organization: string, slow: SlowLayer): Promise<StoredImage> =>
    buildAbove(store, layer, { owner: { organization, build: 'b' }, openLayer: slow.open });
  const names = ['org1', 'org2', 'org3', 'org4', 'org5', 'org1'];
  const layers = names.map(() => new SlowLayer(layer));
  const opened = layers.map((slow) => slow.opened.promise);
  const builds = names.map((name, index) => start(name, layers[index]!));
  await Promise.all(opened.slice(0, 5));
  await prepare(store, 'test/hello:1');
  const isOpen = opened[5]!.then(() => true);
  assert.equal(await Promise.race([isOpen, delay(50, false)]), false, 'one of each organization');
  layers[0]!.end();
  await builds[0];
  await opened[5];
  for (const slow of layers) slow.end();
  const made = await Promise.all(builds);
  assert.equal(new Set(made.map(({ digest }) => digest)).size, names.length);
});

test('a store that closes waits for its builds, which leave nothing', async () => {
  const directory = mkdtempSync(join(site.root, 'store-'));
  const layer = await archiveOf([{ path: 'x' }]);
  const slow = new SlowLayer(layer);
  let build: Promise<StoredImage>;
  {
    await using store = await site.openStore({ directory });
    await prepare(store, `${site.registry.name}/test/base:1`);
    build = buildAbove(store, layer, { openLayer: slow.open });
    build.catch(() => undefined);
    await slow.opened.promise;
  }
  assert.deepEqual(readdirSync(join(directory, 'staging')), []);
  await assert.rejects(build, /shutting down/u);
});

test('a name that cannot be recorded is not kept in memory either, and leaves no file', async () => {
  await using store = await site.openStore();
  await prepare(store, `${site.registry.name}/test/base:1`);
  const layer = await archiveOf([{ path: 'x' }]);
  const { digest } = await buildAbove(store, layer, { isKept: false });
  const path = dirname(store.stored.find(digest)!.path);
  const record = join(path, 'image.json');
  const content = readFileSync(record);
  // A rename onto a directory fails, for root too.
  rmSync(record);
  mkdirSync(record);
  await assert.rejects(store.keep(digest, 'org1', true));
  assert.equal(store.stored.find(digest)?.isKept, false);
  assert.deepEqual(readdirSync(path).toSorted(), ['image.json', 'image.squashfs']);
  rmdirSync(record);
  writeFileSync(record, content);
  assert.equal(await store.keep(digest, 'org1', true), true);
  assert.equal((JSON.parse(readFileSync(record, 'utf8')) as { kept?: boolean }).kept, true);
});

test('a build that waits for another one of its organization asks no guest, and ends when its caller leaves', async () => {
  await using store = await site.openStore();
  const layer = await archiveOf([{ path: 'x' }]);
  await prepare(store, `${site.registry.name}/test/base:1`);
  const slow = new SlowLayer(layer);
  const first = buildAbove(store, layer, { openLayer: slow.open });
  await slow.opened.promise;
  const leaving = new AbortController();
  const waiting = new SlowLayer(layer);
  const second = buildAbove(store, layer, { openLayer: waiting.open, signal: leaving.signal });
  const isOpen = waiting.opened.promise.then(() => true);
  assert.equal(await Promise.race([isOpen, delay(100, false)]), false);
  leaving.abort(new Error('left'));
  await assert.rejects(second, /left/u);
  slow.end();
  await first;
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
  await refused(buildAbove(store, layer, { maxBytes: 100 }), 'capacity', /more than 100 bytes/u);
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
