/** Tests the evictor with stores that only count; the tests of the real stores check that they remove files. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import {
  CacheEvictor,
  type CachedImage,
  type CachedImages,
  type CachedTemplate,
  type CachedThings,
  type CacheEvictorOptions,
} from './cache-evictor.ts';
import { CacheLeases, imageKey, templateKey } from './cache-leases.ts';
import type { LastUse } from './last-use.ts';

const PREPARED_AT = new Date('2026-01-01T00:00:00Z');

function used(ms: number): LastUse {
  const use = { ms, mark: () => (use.ms = 1_000_000) };
  return use as unknown as LastUse;
}

class Things<T> implements CachedThings<T> {
  readonly things = new Map<string, T>();
  failing = new Set<string>();

  values(): Iterable<T> {
    return this.things.values();
  }

  async evict(name: string): Promise<void> {
    if (this.failing.has(name)) throw new Error('the disk is broken');
    this.things.delete(name);
    await Promise.resolve();
  }
}

class Images extends Things<CachedImage> implements CachedImages {
  readonly linked = new Set<string>();
  /** Called while the links of an image are counted. */
  onCount: (digest: string) => void = () => undefined;

  async isLinked(digest: string): Promise<boolean> {
    await Promise.resolve();
    this.onCount(digest);
    return this.linked.has(digest);
  }
}

function setUp(options: Partial<CacheEvictorOptions> = {}) {
  const images = new Images();
  const templates = new Things<CachedTemplate>();
  const leases = new CacheLeases();
  const forgotten: string[] = [];
  const evictor = new CacheEvictor({
    maxBytes: 100,
    leases,
    images,
    templates,
    onTemplateEvicted: (key) => forgotten.push(key),
    log: pino({ level: 'silent' }),
    ...options,
  });
  const addImage = (digest: string, sizeBytes: number, usedMs: number) =>
    images.things.set(digest, { digest, sizeBytes, preparedAt: PREPARED_AT, lastUse: used(usedMs) });
  const addTemplate = (key: string, imageDigest: string | undefined, more: Partial<CachedTemplate> = {}) =>
    templates.things.set(key, {
      key,
      sizeBytes: 10,
      lastUse: used(0),
      imageDigest,
      imagePreparedAt: PREPARED_AT.toISOString(),
      staleReason: undefined,
      ...more,
    });
  const sweep = async () => {
    evictor.request();
    await evictor.settled();
    return [...images.things.keys(), ...templates.things.keys()].join(' ');
  };
  return { images, templates, leases, evictor, addImage, addTemplate, sweep, forgotten };
}

test('the least recently used images are evicted until the rest fits', async () => {
  const { addImage, sweep } = setUp();
  addImage('old', 50, 1);
  addImage('newest', 50, 3);
  addImage('newer', 50, 2);
  assert.equal(await sweep(), 'newest newer');
});

test('within the limit, or without one, everything stays', async () => {
  const within = setUp();
  within.addImage('a', 100, 1);
  assert.equal(await within.sweep(), 'a');
  const unlimited = setUp({ maxBytes: 0 });
  unlimited.addImage('a', 1e12, 1);
  assert.equal(await unlimited.sweep(), 'a');
});

test('templates count, are evicted before an image used at the same time, and the warm pool hears of it', async () => {
  const { addImage, addTemplate, sweep, forgotten } = setUp({ maxBytes: 60 });
  addImage('image', 50, 5);
  addTemplate('old', 'image', { lastUse: used(1) });
  addTemplate('new', 'image', { lastUse: used(5) });
  assert.equal(await sweep(), 'image new');
  addImage('second', 10, 9);
  assert.equal(await sweep(), 'image second');
  assert.deepEqual(forgotten, ['old', 'new']);
});

test('a guest booted without an image is evicted by its age alone, and stays while a template is made from it', async () => {
  const { addImage, addTemplate, sweep, leases } = setUp({ maxBytes: 60 });
  const addBooted = () => addTemplate('booted', undefined, { imagePreparedAt: undefined, lastUse: used(1) });
  addBooted();
  addTemplate('of-gone', 'gone');
  assert.equal(await sweep(), 'booted');
  const lease = leases.open();
  lease.add(templateKey('booted'));
  addImage('image', 55, 5);
  assert.equal(await sweep(), 'booted', 'it is in use');
  lease.release();
  addImage('image', 55, 5);
  addBooted();
  assert.equal(await sweep(), 'image');
});

test('the templates of an image are evicted with it', async () => {
  const { addImage, addTemplate, sweep } = setUp();
  addImage('old', 95, 1);
  addTemplate('of-old', 'old', { lastUse: used(9) });
  assert.equal(await sweep(), '');
});

test('images and templates in use stay over any limit, and so does the image of a template in use', async () => {
  const { addImage, addTemplate, sweep, leases, evictor } = setUp({ maxBytes: 1 });
  addImage('held', 50, 1);
  addImage('below', 50, 1);
  addImage('free', 50, 9);
  addTemplate('running', 'below');
  const lease = leases.open();
  lease.add(imageKey('held'));
  lease.add(templateKey('running'));
  assert.equal(await sweep(), 'held below running');
  lease.release();
  await evictor.settled();
  assert.equal(evictor.totalBytes, 0);
});

test('the release of a lease counts as a use', async () => {
  const { addImage, leases, evictor, images } = setUp();
  addImage('running-for-days', 60, 1);
  addImage('used-yesterday', 60, 5);
  const lease = leases.open();
  lease.add(imageKey('running-for-days'));
  lease.release();
  await evictor.settled();
  assert.deepEqual([...images.things.keys()], ['running-for-days']);
});

test('templates that can serve no create are evicted even without a limit, unless a sandbox runs from one', async () => {
  const { addImage, addTemplate, sweep, leases, evictor, templates } = setUp({ maxBytes: 0 });
  addImage('image', 1, 1);
  addTemplate('good', 'image');
  addTemplate('other-kernel', 'image', { staleReason: 'QEMU, kernel or agent has changed' });
  addTemplate('no-image', 'gone');
  addTemplate('image-made-again', 'image', { imagePreparedAt: '2020-01-01T00:00:00.000Z' });
  addTemplate('running', 'gone');
  const lease = leases.open();
  lease.add(templateKey('running'));
  assert.equal(await sweep(), 'image good running');
  lease.release();
  await evictor.settled();
  assert.deepEqual([...templates.things.keys()], ['good']);
});

test('an image that cannot be removed is skipped, and the next one is evicted instead', async () => {
  const { addImage, sweep, images } = setUp();
  addImage('stuck', 60, 1);
  addImage('next', 60, 2);
  images.failing.add('stuck');
  assert.equal(await sweep(), 'stuck');
  addImage('third', 60, 3);
  assert.equal(await sweep(), 'stuck');
});

test('a built image with a name stays over any limit until it is deleted and no longer in use', async () => {
  const { addImage, addTemplate, sweep, leases, images, evictor } = setUp({ maxBytes: 1 });
  addImage('built', 50, 1);
  const built = images.things.get('built');
  assert.ok(built);
  images.things.set('built', { ...built, isKept: true, isReleased: false });
  assert.equal(await sweep(), 'built');
  images.things.set('built', { ...built, isKept: true, isReleased: true });
  addTemplate('running', 'built');
  const lease = leases.open();
  lease.add(imageKey('built'));
  lease.add(templateKey('running'));
  assert.equal(await sweep(), 'built running');
  lease.release();
  await evictor.settled();
  assert.deepEqual([...images.things.keys()], []);
});

test('a deleted image goes when the last link to its file is gone', async () => {
  const { addImage, sweep, images, evictor } = setUp();
  addImage('deleted', 50, 1);
  Object.assign(images.things.get('deleted')!, { owner: {}, isKept: true, isReleased: true });
  images.linked.add('deleted');
  assert.equal(await sweep(), 'deleted');
  assert.equal(evictor.totalBytes, 0);
  images.linked.clear();
  assert.equal(await sweep(), '');
});

test('linked images of steps are neither evicted nor counted, so they push nothing out', async () => {
  const { addImage, sweep, images } = setUp();
  addImage('old', 90, 1);
  for (const digest of ['step', 'deleted step']) {
    addImage(digest, 500, 9);
    Object.assign(images.things.get(digest)!, { owner: {}, isReleased: digest !== 'step' });
    images.linked.add(digest);
  }
  assert.equal(await sweep(), 'old step deleted step');
  images.linked.clear();
  assert.equal(await sweep(), '');
});

test('an image that comes into use or gets a name while its links are counted stays', async () => {
  const { addImage, sweep, images, leases } = setUp();
  for (const digest of ['used', 'deleted and used', 'named', 'linked']) addImage(digest, 90, 1);
  for (const image of images.things.values()) image.owner = {};
  const used = images.things.get('deleted and used')!;
  used.isReleased = true;
  const lease = leases.open();
  let counts = 0;
  images.onCount = (digest) => {
    if (digest === 'deleted and used') lease.add(imageKey(digest));
    counts += 1;
    // Each was counted once before; now they are about to be evicted.
    if (counts <= 5) return;
    if (digest === 'used') lease.add(imageKey(digest));
    if (digest === 'named') images.things.get(digest)!.isKept = true;
    if (digest === 'linked') images.linked.add(digest);
  };
  assert.equal(await sweep(), 'used deleted and used named linked');
});

test('what a step of a build has left counts, and is evicted like any image', async () => {
  const { addImage, sweep, images } = setUp();
  addImage('step', 60, 1);
  const step = images.things.get('step');
  assert.ok(step);
  images.things.set('step', { ...step, isKept: false, isReleased: false });
  addImage('newer', 60, 2);
  assert.equal(await sweep(), 'newer');
});

test('an image that gets a name again while another one is removed stays', async () => {
  const { addImage, sweep, images } = setUp();
  for (const digest of ['first', 'second']) {
    addImage(digest, 1, 1);
    const image = images.things.get(digest);
    assert.ok(image);
    image.isReleased = true;
  }
  const evict = images.evict.bind(images);
  images.evict = async (name) => {
    const other = images.things.get('second');
    if (name === 'first' && other !== undefined) other.isReleased = false;
    await evict(name);
  };
  assert.equal(await sweep(), 'second');
});
