/** Two runners with one object store, through the real programs; the image's file only has bytes of its size. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { CacheLeases, imageKey } from '../cache/cache-leases.ts';
import { SQUASHFS_NAME, StoredImages } from '../image/store/stored-images.ts';
import type { BlockServer } from '../workspace/block-server.ts';
import { DiskSite } from '../workspace/testing/disk-site.ts';
import { SharedImages, type SharedImagesParts } from './shared-images.ts';

const MIB = 2 ** 20;
const ORG = 'org';
const CONFIG = { env: { A: 'x', B: '"\n' }, user: 'app', workdir: '/srv' };
const log = pino({ level: 'silent' });
let site: DiskSite;
let server: BlockServer;

before(() => {
  site = new DiskSite();
  server = site.openServer();
});
after(() => {
  server[Symbol.dispose]();
  site[Symbol.dispose]();
});

interface TestRunner {
  images: StoredImages;
  leases: CacheLeases;
  shared: SharedImages;
  onStored: number;
}

async function openRunner(more: Partial<SharedImagesParts> = {}): Promise<TestRunner> {
  const images = await StoredImages.open(mkdtempSync(join(site.directory, 'images-')), log);
  const leases = new CacheLeases();
  const runner: TestRunner = { images, leases, onStored: 0, shared: undefined as never };
  const onStored = (): void => void (runner.onStored += 1);
  runner.shared = new SharedImages({
    images,
    server,
    isShared: true,
    leases,
    makeRoom: async () => undefined,
    onStored,
    log,
    ...more,
  });
  return runner;
}

/** Publishes an image as a build does, and returns its digest. */
async function build({ images }: TestRunner, content = randomBytes(3 * MIB + 5)): Promise<string> {
  const digest = `sha256:${randomBytes(32).toString('hex')}`;
  await using staging = await images.makeStaging();
  writeFileSync(join(staging.path, SQUASHFS_NAME), content, { mode: 0o444 });
  await images.publish(staging.path, {
    digest,
    sizeBytes: content.length,
    config: CONFIG,
    reference: { name: `built/image@${digest}`, isAnonymous: false },
    owner: { organization: ORG, build: 'build1' },
    isKept: true,
  });
  return digest;
}

test('an image is fetched by another runner as it was built, and is part of the cache there', async () => {
  const [one, other] = [await openRunner(), await openRunner()];
  const content = Buffer.concat([randomBytes(2 * MIB), Buffer.alloc(2 * MIB), randomBytes(77)]);
  const digest = await build(one, content);
  const sent = await one.shared.store(digest, ORG);
  assert.ok(sent.sent_bytes > 2 * MIB && sent.sent_bytes < 3 * MIB, JSON.stringify(sent));
  assert.equal((await one.shared.store(digest, ORG)).sent_bytes, 0);

  using lease = other.leases.open();
  const steps: string[] = [];
  const onStep = (step: string): void => void steps.push(step);
  await other.shared.ensure({ digest }, { organization: ORG, lease, onStep });
  const fetched = other.images.findOwned(digest, ORG);
  assert.ok(fetched);
  assert.deepEqual(readFileSync(fetched.path), content);
  assert.deepEqual(fetched.config, CONFIG);
  assert.deepEqual(
    [fetched.owner, fetched.isKept, fetched.sizeBytes],
    [{ organization: ORG, build: 'build1' }, false, content.length],
  );
  assert.equal(statSync(fetched.path).mode & 0o777, 0o444);
  assert.ok(other.leases.isHeld(imageKey(digest)), 'the caller holds it');
  assert.deepEqual([steps, other.onStored], [['pull'], 1]);
  await other.shared.ensure({ digest }, { organization: ORG, lease, onStep });
  assert.deepEqual([steps, other.onStored], [['pull'], 1], 'nothing is fetched twice');

  const reopened = await StoredImages.open(join(fetched.path, '..', '..', '..'), log);
  assert.deepEqual(reopened.findOwned(digest, ORG)?.config, CONFIG);
});

test('callers at the same time share a fetch, and one that leaves does not end it', async () => {
  const [one, other] = [await openRunner(), await openRunner()];
  const digest = await build(one);
  await one.shared.store(digest, ORG);
  const leaving = new AbortController();
  const first = other.shared.ensure({ digest }, { organization: ORG, signal: leaving.signal });
  const second = other.shared.ensure({ digest }, { organization: ORG });
  leaving.abort(new Error('left'));
  await assert.rejects(first, /left/u);
  await second;
  assert.ok(other.images.findOwned(digest, ORG));
  assert.equal(other.onStored, 1);
});

test('another organization finds nothing, nor does one of an image that was removed', async () => {
  const [one, other] = [await openRunner(), await openRunner()];
  const digest = await build(one);
  await one.shared.store(digest, ORG);
  await other.shared.ensure({ digest }, { organization: 'other' });
  assert.equal(other.images.find(digest), undefined);
  await assert.rejects(one.shared.store(digest, 'other'), { code: 'image_not_found' });
  await one.shared.remove(digest, ORG);
  await one.shared.remove(digest, ORG);
  await other.shared.ensure({ digest }, { organization: ORG });
  assert.equal(other.images.find(digest), undefined);
  assert.ok(one.images.findOwned(digest, ORG), 'the local one stays');
});

test('an image that was given up and has a name again is used as it lies here', async () => {
  const runner = await openRunner();
  const digest = await build(runner);
  await runner.shared.store(digest, ORG);
  assert.equal(await runner.images.release(digest), true);
  assert.equal(runner.images.findOwned(digest, ORG), undefined);
  await runner.shared.ensure({ digest }, { organization: ORG });
  assert.ok(runner.images.findOwned(digest, ORG));
  assert.equal(runner.onStored, 0);
});

test('one that has no name any more stays given up', async () => {
  const runner = await openRunner();
  const digest = await build(runner);
  assert.equal(await runner.images.release(digest), true);
  await runner.shared.ensure({ digest }, { organization: ORG });
  assert.equal(runner.images.findOwned(digest, ORG), undefined);
});

test('room is made for all that is fetched at a time, and a full disk refuses a fetch, which leaves nothing', async () => {
  const asked: number[] = [];
  const all = Promise.withResolvers<void>();
  const makeRoom = async (mib: number): Promise<void> => {
    // None is fetched before all have asked.
    if (asked.push(mib) === 3) all.resolve();
    await all.promise;
    if (mib > 8) throw new AppError('capacity', 'the disk is full');
  };
  const [one, other] = [await openRunner(), await openRunner({ makeRoom })];
  const digests = await Promise.all([0, 1, 2].map(() => build(one)));
  for (const digest of digests) await one.shared.store(digest, ORG);
  const ensure = (digest: string): Promise<void> => other.shared.ensure({ digest }, { organization: ORG });
  const outcomes = await Promise.allSettled(digests.map(ensure));
  assert.deepEqual(outcomes.map(({ status }) => status).toSorted(), ['fulfilled', 'fulfilled', 'rejected']);
  assert.deepEqual(
    asked.toSorted((a, b) => a - b),
    [4, 7, 10],
  );
  for (const digest of digests) await ensure(digest);
  assert.equal(asked.at(-1), 4, 'room that was not used any more is free again');
});

test('a fetch whose image is removed meanwhile finds nothing', async () => {
  const one = await openRunner();
  const digest = await build(one);
  await one.shared.store(digest, ORG);
  const makeRoom = (): Promise<void> => one.shared.remove(digest, ORG);
  const other = await openRunner({ makeRoom });
  await other.shared.ensure({ digest }, { organization: ORG });
  assert.equal(other.images.find(digest), undefined);
  assert.equal(other.onStored, 0);
});

test('damage is told with the digest and the remedy, and leaves nothing', async () => {
  const [one, other] = [await openRunner(), await openRunner()];
  const digest = await build(one);
  await one.shared.store(digest, ORG);
  const chunks = site.listObjects().filter((path) => statSync(path).size > MIB / 2);
  assert.ok(chunks.length > 2);
  for (const path of chunks) {
    const content = readFileSync(path);
    content[content.length >> 1]! ^= 1;
    writeFileSync(path, content);
  }
  await assert.rejects(other.shared.ensure({ digest }, { organization: ORG }), {
    code: 'invalid_image',
    message: new RegExp(`${digest} is damaged.*build it again with no_cache`, 'u'),
  });
  assert.equal(other.images.find(digest), undefined);
});

test('an end of the runner ends transfers; a directory on this machine is no place for images', async () => {
  const ending = await openRunner();
  const digest = await build(ending);
  await ending.shared[Symbol.asyncDispose]();
  await assert.rejects(async () => ending.shared.store(digest, ORG), { code: 'unavailable' });
  const alone = await openRunner({ isShared: false });
  await assert.rejects(async () => alone.shared.store(digest, ORG), { code: 'invalid_state' });
  await assert.rejects(alone.shared.remove(digest, ORG), { code: 'invalid_state' });
  await alone.shared.ensure({ digest }, { organization: ORG });
  assert.equal(alone.images.find(digest), undefined);
});
