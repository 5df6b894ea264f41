/** Storing and removing captures, with records of a real control and a stand-in for its runner's object store. */
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import type { Database } from '../db/database.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { ManualClock } from '../testing/manual-clock.ts';
import { CaptureObjectStore } from './capture-object-store.ts';
import { CaptureStorage, type CaptureStorageParts } from './capture-storage.ts';

const HOUR_MS = 3_600_000;

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
  onStore: (id: string) => Promise<void> = async () => undefined;
  readonly #storage: CaptureStorage;

  constructor() {
    const captures: CaptureStorageParts['captures'] = {
      list: async () => (this.isLocal ? [...harness.runner.captures.saved.values()] : []),
      store: async (id) => {
        this.attempts.push(id);
        await this.onStore(id);
        this.stored.add(id);
        return { stored_bytes: 1000, sent_bytes: 10 };
      },
      remove: async (id, organization) => {
        assert.ok(organization !== undefined);
        this.stored.delete(id);
        this.removed.push(id);
      },
      collect: async () => {
        this.passes += 1;
        const { unused } = this;
        this.unused = 0;
        return { deleted_objects: 0, deleted_bytes: 0, unused };
      },
    };
    const store = new CaptureObjectStore(db);
    const log = pino({ level: 'silent' });
    const alone = { isConnected: () => true, leadership: { isLeading: true } };
    const parts = { ...alone, store, captures, runnerId, clock: this.clock, intervalMs: 2, log };
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
