/** Storing and removing captures, with records of a real control and a stand-in for its runner's object store. */
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { EVERYONE, type StoredCapture } from '../../lib/protocol/capture-protocol.ts';
import type { Database } from '../db/database.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { ManualClock } from '../testing/manual-clock.ts';
import { CaptureObjectStore } from './capture-object-store.ts';
import { PulledImageStore } from './pulled-image-store.ts';
import { CaptureStorage, type CaptureStorageParts } from './capture-storage.ts';

const HOUR_MS = 3_600_000;
const OTHER = 'runner-other';

let harness: ControlHarness;
let db: Database & AsyncDisposable;
let runnerId: string;
let bucket: Bucket;
before(async () => {
  harness = await startHarness();
  db = harness.openDatabase();
  const { id } = await harness.create({ timeout: 0 });
  const row = await db
    .selectFrom('sandboxes')
    .select('runner_id')
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  assert.ok(row.runner_id !== null);
  runnerId = row.runner_id;
});
after(async () => {
  await db[Symbol.asyncDispose]();
  await harness[Symbol.asyncDispose]();
});
beforeEach(() => (bucket = new Bucket()));
afterEach(() => bucket[Symbol.asyncDispose]());

/** The object store of the runner. */
class Bucket implements AsyncDisposable {
  readonly clock = new ManualClock();
  readonly stored = new Set<string>();
  readonly removed: string[] = [];
  readonly attempts: string[] = [];
  passes = 0;
  unused = 0;
  isLocal = true;
  /** Digests of what the runner has. */
  images: string[] = [];
  onStore: (id: string) => Promise<void> = async () => undefined;
  onRemove: (id: string) => Promise<void> = async () => undefined;
  readonly #storage: CaptureStorage;

  constructor() {
    const put = async (id: string): Promise<StoredCapture> => {
      this.attempts.push(id);
      await this.onStore(id);
      this.stored.add(id);
      return { stored_bytes: 1000, sent_bytes: 10 };
    };
    const remove = async (id: string, organization: string | undefined): Promise<void> => {
      assert.ok(organization !== undefined);
      await this.onRemove(id);
      this.stored.delete(id);
      this.removed.push(id);
    };
    const images = {
      store: (id: string) => put(`image ${id}`),
      removeStored: (id: string, organization: string) => remove(`image ${id}`, organization),
    };
    const captures: CaptureStorageParts['captures'] = {
      list: async () => (this.isLocal ? [...harness.runner.captures.saved.values()] : []),
      store: put,
      remove,
      collect: async () => {
        this.passes += 1;
        const { unused } = this;
        this.unused = 0;
        return { deleted_objects: 0, deleted_bytes: 0, unused };
      },
    };
    const store = new CaptureObjectStore(db);
    const log = pino({ level: 'silent' });
    const alone = { isConnected: () => true, storesImages: () => true, isRemoving: () => true };
    const listImages = (): readonly string[] => this.images;
    const parts = {
      ...alone,
      listImages,
      store,
      pulledImages: new PulledImageStore(db),
      captures,
      images,
      runnerId,
      clock: this.clock,
      intervalMs: 2,
      log,
    };
    this.#storage = new CaptureStorage(parts);
    this.#storage.start();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#storage[Symbol.asyncDispose]();
  }
}

async function snapshot(): Promise<string> {
  const { id } = await harness.create({ timeout: 0 });
  const answer = await harness.call('POST', `/v1/runs/${id}/snapshot`);
  assert.equal(answer.status, 201, JSON.stringify(answer.body));
  return String(answer.body.id);
}

const find = (id: string) =>
  db.selectFrom('capture_objects').selectAll().where('capture_id', '=', id).executeTakeFirst();
const untilStored = (id: string) =>
  waitFor(`${id} to be stored`, async () => ((await find(id))?.stored_at ?? null) !== null);

test('a snapshot is stored and noted; after its deletion its objects go, and its row with the last chunk', async () => {
  const id = await snapshot();
  await untilStored(id);
  assert.equal((await find(id))?.stored_bytes, 1000);
  bucket.unused = 3;
  assert.equal((await harness.call('DELETE', `/v1/snapshots/${id}`)).status, 204);
  await waitFor('its removal', async () => (await find(id))?.removed_at !== null);
  assert.deepEqual([bucket.removed, bucket.stored.has(id)], [[id], false]);
  await waitFor('a first pass', () => bucket.passes === 1);
  assert.ok((await find(id)) !== undefined, 'chunks are left');
  bucket.clock.advance(HOUR_MS);
  await waitFor('its row to go', async () => (await find(id)) === undefined);
  assert.equal(bucket.passes, 2);
});

test('a hibernation is stored, and its objects go after the resume', async () => {
  const { id } = await harness.create({ timeout: 0 });
  assert.equal((await harness.call('POST', `/v1/runs/${id}/hibernate`)).status, 200);
  await waitFor('the hibernation to be stored', () =>
    [...bucket.stored].some((each) => each.startsWith('hib')),
  );
  assert.equal((await harness.call('POST', `/v1/runs/${id}/resume`)).status, 200);
  await waitFor('its objects to go', () => bucket.removed.some((each) => each.startsWith('hib')));
});

test('a built image is stored once for all of its names, then any runner can use it, until its last name goes', async () => {
  const digest = `sha256:${'d'.repeat(64)}`;
  const { organization_id, team_id } = await db
    .selectFrom('sandboxes')
    .select(['organization_id', 'team_id'])
    .executeTakeFirstOrThrow();
  const row = { organization_id, team_id, digest, size_bytes: 7, built_at: 1, runner_id: runnerId };
  await db
    .insertInto('built_images')
    .values([
      { ...row, name: 'built/app:1' },
      { ...row, name: 'built/app:2' },
    ])
    .execute();
  await untilStored(digest);
  assert.deepEqual(
    bucket.attempts.filter((id) => id.endsWith(digest)),
    [`image ${digest}`],
  );
  assert.equal(await new CaptureObjectStore(db).isStored(digest), true);
  const drop = (name: string): Promise<unknown> =>
    db.deleteFrom('built_images').where('name', '=', name).execute();
  await drop('built/app:1');
  const { passes } = bucket;
  await snapshot().then(untilStored);
  assert.deepEqual([bucket.removed, bucket.passes], [[], passes]);
  await drop('built/app:2');
  await waitFor('its removal', () => bucket.removed.includes(`image ${digest}`));
  assert.equal(await new CaptureObjectStore(db).isStored(digest), false);
  await waitFor('its row to go', async () => (await find(digest)) === undefined);
});

test('an image whose names say the wrong runner is stored by the one that has it', async () => {
  const digest = `sha256:${'f'.repeat(64)}`;
  const { organization_id, team_id } = await db
    .selectFrom('sandboxes')
    .select(['organization_id', 'team_id'])
    .executeTakeFirstOrThrow();
  bucket.onStore = async () => {
    throw new AppError('image_not_found', 'there is no such image');
  };
  const row = { organization_id, team_id, digest, size_bytes: 7, built_at: 1, runner_id: runnerId };
  await db
    .insertInto('built_images')
    .values({ ...row, name: 'built/moved:1' })
    .execute();
  const runnerOf = async (): Promise<string | null> => {
    const found = await db
      .selectFrom('built_images')
      .select('runner_id')
      .where('digest', '=', digest)
      .executeTakeFirstOrThrow();
    return found.runner_id;
  };
  await waitFor('the runner to be forgotten', async () => (await runnerOf()) === null);
  bucket.onStore = async () => undefined;
  bucket.images = [digest];
  await waitFor('the runner that has it', async () => (await runnerOf()) === runnerId);
  await untilStored(digest);
  await db.deleteFrom('built_images').where('digest', '=', digest).execute();
  await waitFor('its row to go', async () => (await find(digest)) === undefined);
});

test('an image that is named again is not removed by a list that was read before', async () => {
  const store = new CaptureObjectStore(db);
  const digest = `sha256:${'e'.repeat(64)}`;
  const { organization_id, team_id } = await db
    .selectFrom('sandboxes')
    .select(['organization_id', 'team_id'])
    .executeTakeFirstOrThrow();
  await bucket[Symbol.asyncDispose]();
  await store.begin({ captureId: digest, organizationId: organization_id }, runnerId, 1);
  await store.noteStored(digest, 1, 1);
  const [left] = await store.listLeft();
  assert.equal(left?.captureId, digest);
  const row = { organization_id, team_id, digest, size_bytes: 7, built_at: 1, runner_id: null };
  await db
    .insertInto('built_images')
    .values({ ...row, name: 'built/again:1' })
    .execute();
  assert.equal(await store.claimRemoval(digest, 2), false);
  assert.equal(await store.isStored(digest), true);
  await db.deleteFrom('built_images').where('digest', '=', digest).execute();
  assert.equal(await store.claimRemoval(digest, 3), true);
  assert.equal(await store.claimRemoval(digest, 4), false);
  assert.equal(await store.isStored(digest), false);
  // A kill came here: the next collection removes it.
  bucket = new Bucket();
  await waitFor('its removal', () => bucket.removed.includes(`image ${digest}`));
  await waitFor('its row to go', async () => (await find(digest)) === undefined);
});

/** Has an organization use an image of a registry, or an imported one, at a time; there is another runner. Returns what takes it back. */
async function useImage(
  digest: string,
  lastUsedAt: number,
  image = 'docker.io/library/app:1',
): Promise<AsyncDisposable> {
  const { organization_id } = await db
    .selectFrom('sandboxes')
    .select('organization_id')
    .executeTakeFirstOrThrow();
  const use = { organization_id, image: `${image}@${digest}`, digest, last_used_at: lastUsedAt };
  await db.insertInto('image_uses').values(use).execute();
  const other = { id: OTHER, region: 'us', owner: null };
  await db.insertInto('runners').values(other).execute();
  return {
    [Symbol.asyncDispose]: async () => {
      await db.deleteFrom('image_uses').where('digest', '=', digest).execute();
      await db.deleteFrom('runners').where('id', '=', OTHER).execute();
    },
  };
}

test('an image of a registry is stored by one of the runners while organizations use it, and then removed', async () => {
  const digest = `sha256:${'9'.repeat(64)}`;
  const day = 24 * HOUR_MS;
  const used = bucket.clock.wallMs() - 5 * day;
  await using _ = await useImage(digest, used);
  const pulled = new PulledImageStore(db);
  const list = async (at: string, now = bucket.clock.wallMs()): Promise<string[]> =>
    (await pulled.listUnstored(at, [digest], now)).map(({ captureId }) => captureId);
  assert.deepEqual(await list(runnerId), [digest]);
  assert.deepEqual(await list(runnerId, used + 7 * day), [], 'its time is almost over');
  await db.updateTable('runners').set({ revoked_at: 1 }).where('id', '=', OTHER).execute();
  assert.deepEqual(await list(runnerId), [], 'there is no other runner');
  await db.updateTable('runners').set({ revoked_at: null }).where('id', '=', OTHER).execute();

  assert.equal(await pulled.claim(digest, OTHER, bucket.clock.wallMs()), true);
  assert.equal(await pulled.claim(digest, OTHER, bucket.clock.wallMs()), true);
  assert.equal(await pulled.claim(digest, runnerId, bucket.clock.wallMs()), false);
  assert.deepEqual([await list(OTHER), await list(runnerId)], [[digest], []]);
  await pulled.release(digest, runnerId);
  assert.deepEqual(await list(runnerId), [], 'only its own claim');
  await pulled.release(digest, OTHER);
  assert.deepEqual(await list(runnerId), [digest]);
  assert.equal(await pulled.claim(digest, OTHER, bucket.clock.wallMs()), true);
  bucket.clock.advance(6 * HOUR_MS + 1);
  bucket.images = [digest];
  await untilStored(digest);
  assert.equal((await find(digest))?.runner_id, runnerId, 'the other one did not end it');
  assert.deepEqual(await list(OTHER, bucket.clock.wallMs() + 7 * HOUR_MS), [], 'it is stored');
  const attempts = (): number => bucket.attempts.filter((id) => id === `image ${digest}`).length;
  await snapshotStoredMeanwhile();
  assert.equal(attempts(), 1);

  bucket.images = [];
  bucket.clock.advance(2 * day);
  await waitFor('its removal', () => bucket.removed.includes(`image ${digest}`));
  await waitFor('its row to go', async () => (await find(digest)) === undefined);
});

test('an image of a registry that the runner has evicted is left to others, and tried again later', async () => {
  const digest = `sha256:${'8'.repeat(64)}`;
  await using _ = await useImage(digest, bucket.clock.wallMs());
  let isEvicted = true;
  bucket.onStore = async (id) => {
    if (isEvicted && id === `image ${digest}`) throw new AppError('image_not_found', 'it was evicted');
  };
  bucket.images = [digest];
  const attempts = (): number => bucket.attempts.filter((id) => id === `image ${digest}`).length;
  const pulled = new PulledImageStore(db);
  await waitFor('an attempt', () => attempts() === 1);
  await waitFor('its release', async () => (await find(digest))?.created_at === 0);
  await snapshotStoredMeanwhile();
  assert.equal(attempts(), 1, 'not before a pause');
  assert.deepEqual((await pulled.listUnstored(OTHER, [digest], bucket.clock.wallMs())).length, 1);
  isEvicted = false;
  bucket.clock.advance(HOUR_MS);
  await untilStored(digest);
  await db.deleteFrom('capture_objects').where('capture_id', '=', digest).execute();
});

test('imported images are not stored, and in a crowded bucket only those that are used daily', async () => {
  const digest = `sha256:${'7'.repeat(64)}`;
  const now = bucket.clock.wallMs();
  const pulled = new PulledImageStore(db);
  const isListed = async (): Promise<boolean> =>
    (await pulled.listUnstored(runnerId, [digest], now)).length > 0;
  {
    await using _ = await useImage(digest, now, 'local/app:1');
    assert.equal(await isListed(), false);
  }
  await using _ = await useImage(digest, now - 13 * HOUR_MS);
  assert.equal(await isListed(), true);
  const filler = {
    capture_id: 'filler',
    organization_id: EVERYONE,
    runner_id: OTHER,
    created_at: 1,
    stored_at: 1,
  };
  const fill = (gib: number) =>
    db
      .insertInto('capture_objects')
      .values({ ...filler, stored_bytes: gib * 2 ** 30 })
      .onConflict((conflict) => conflict.column('capture_id').doUpdateSet({ stored_bytes: gib * 2 ** 30 }))
      .execute();
  // The filler must stay: no loop removes it.
  await bucket[Symbol.asyncDispose]();
  await fill(400);
  assert.equal(await isListed(), false);
  await db.updateTable('image_uses').set({ last_used_at: now }).where('digest', '=', digest).execute();
  assert.equal(await isListed(), true);
  await fill(500);
  assert.equal(await isListed(), false);
  assert.equal(await pulled.claim(digest, runnerId, now), false);
  assert.deepEqual(
    (await pulled.listLeft(now)).map(({ captureId }) => captureId),
    ['filler'],
  );
  await db.deleteFrom('capture_objects').where('capture_id', '=', 'filler').execute();
});

test('what cannot be removed holds up neither the rest nor the collection', async () => {
  const [one, other] = [await snapshot(), await snapshot()];
  await untilStored(one);
  await untilStored(other);
  bucket.onRemove = async (id) => {
    if (id === one) throw new AppError('internal', 'the object store refuses it');
  };
  for (const id of [one, other])
    assert.equal((await harness.call('DELETE', `/v1/snapshots/${id}`)).status, 204);
  await waitFor('the removal of the other one', () => bucket.removed.includes(other));
  await waitFor('its row to go', async () => (await find(other)) === undefined);
  assert.equal((await find(one))?.removed_at, null);
  bucket.onRemove = async () => undefined;
  await waitFor('its removal at last', () => bucket.removed.includes(one));
});

test('a failure loses nothing and is tried again, less often each time', async () => {
  let isAway = true;
  bucket.onStore = async () => {
    if (isAway) throw new AppError('unavailable', 'the object store is away');
  };
  const id = await snapshot();
  const tries = (): number => bucket.attempts.filter((each) => each === id).length;
  await waitFor('a first attempt', () => tries() === 1);
  await waitFor('its end', async () => (await find(id))?.stored_at === null);
  for (const [ms, expected] of [
    [5_000, 2],
    [9_000, 2],
    [1_000, 3],
  ] as const) {
    bucket.clock.advance(ms);
    const seen = bucket.attempts.length;
    if (expected > tries()) await waitFor('another attempt', () => bucket.attempts.length > seen);
    else await snapshotStoredMeanwhile();
    assert.equal(tries(), expected, `after ${ms} ms more`);
  }
  assert.equal((await harness.call('GET', `/v1/snapshots/${id}`)).status, 200);
  isAway = false;
  bucket.clock.advance(HOUR_MS);
  await untilStored(id);
});

/** Waits for some rounds. */
async function snapshotStoredMeanwhile(): Promise<void> {
  const other = await snapshot();
  await waitFor('an attempt for another one', () => bucket.attempts.includes(other));
}

test('the objects of a snapshot that is deleted while it is stored are removed', async () => {
  const held = Promise.withResolvers<void>();
  bucket.onStore = () => held.promise;
  const id = await snapshot();
  await waitFor('its upload', () => bucket.attempts.includes(id));
  assert.equal((await harness.call('DELETE', `/v1/snapshots/${id}`)).status, 204);
  await waitFor('its removal', () => bucket.removed.includes(id));
  held.resolve();
  await waitFor('a second removal', () => bucket.removed.filter((each) => each === id).length === 2);
  assert.equal(bucket.stored.has(id), false);
});

test('the runner of a snapshot is noted, until only the object store has it', async () => {
  const id = await snapshot();
  const runnerOf = async () =>
    (await db.selectFrom('snapshots').select('runner_id').where('id', '=', id).executeTakeFirst())?.runner_id;
  assert.equal(await runnerOf(), runnerId);
  await untilStored(id);
  bucket.isLocal = false;
  await waitFor('no runner', async () => (await runnerOf()) === null);
  bucket.isLocal = true;
  await waitFor('the runner again', async () => (await runnerOf()) === runnerId);
});
