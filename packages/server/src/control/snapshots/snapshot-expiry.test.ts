/** Snapshots that expire, and changes of snapshots, through the real API and database. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { SnapshotRecord } from '@coppice/contract';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';
import { SnapshotStore } from './snapshot-store.ts';

const HOUR_MS = 3_600_000;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.captures.reset());

const inMs = (ms: number): string => new Date(Date.now() + ms).toISOString();
const call = (method: string, path: string, body?: object): Promise<Answer> =>
  harness.call(method, path, body === undefined ? {} : { body });
const get = (id: string): Promise<Answer> => call('GET', `/v1/snapshots/${id}`);
const patch = (id: string, body: object): Promise<Answer> => call('PATCH', `/v1/snapshots/${id}`, body);
const isSaved = (id: string): boolean => harness.runner.captures.saved.has(id);

async function save(body?: object): Promise<SnapshotRecord & { sandbox: string }> {
  const { id } = await harness.create({ timeout: 0 });
  const answer = await call('POST', `/v1/runs/${id}/snapshot`, body);
  assert.equal(answer.status, 201, JSON.stringify(answer.body));
  return { ...answer.body, sandbox: id };
}

/** Waits until the service has reconciled after this call: whatever it was going to delete is deleted. */
async function reconciled(): Promise<void> {
  const { id } = await save({ expires_in: 1 });
  await waitFor('another snapshot to be deleted', () => !isSaved(id));
}

test('a snapshot is got by its id as it is listed', async () => {
  const { sandbox: _, ...saved } = await save({ name: 'one' });
  assert.deepEqual((await get(saved.id)).body, saved);
  assert.equal(saved.expires_at, null);
  for (const id of [`snap${'0'.repeat(20)}`, 'nonsense']) assert.equal((await get(id)).status, 404);
  const apiKey = await harness.addOrganization();
  for (const [method, body] of [['GET'], ['PATCH', { name: 'theirs' }]] as const) {
    const answer = await harness.call(method, `/v1/snapshots/${saved.id}`, {
      apiKey,
      ...(body === undefined ? {} : { body }),
    });
    assert.equal(answer.status, 404, method);
  }
  assert.equal((await get(saved.id)).body.name, 'one');
});

test('a snapshot expires after the given seconds, with its files, even if its sandbox runs on', async () => {
  const { id, expires_at, created_at, sandbox } = await save({ expires_in: 1 });
  assert.equal(Date.parse(expires_at ?? ''), Date.parse(created_at) + 1000);
  await waitFor('it to be gone', async () => (await get(id)).status === 404);
  assert.ok(Date.now() >= Date.parse(expires_at ?? ''));
  assert.deepEqual((await call('GET', `/v1/snapshots?run_id=${sandbox}`)).body, []);
  await waitFor('its files to be removed', () => !isSaved(id));
  assert.equal((await call('GET', `/v1/runs/${sandbox}`)).body.status, 'running');
});

test('name and expiry are changed, each without the other', async () => {
  const { id } = await save({ name: 'one', expires_in: 60 });
  const end = inMs(HOUR_MS);
  assert.equal((await patch(id, { expires_at: end })).body.expires_at, end);
  const named = (await patch(id, { name: 'two' })).body;
  assert.deepEqual([named.name, named.expires_at], ['two', end]);
  const open = (await patch(id, { name: null, expires_at: null })).body;
  assert.deepEqual([open.name, open.expires_at], [null, null]);
  assert.deepEqual((await patch(id, {})).body, open);
  assert.deepEqual((await get(id)).body, open);
});

test('a snapshot whose expiry is prolonged or removed in time is kept', async () => {
  const { id } = await save({ expires_in: 1 });
  await patch(id, { expires_at: null });
  await reconciled();
  assert.equal((await get(id)).status, 200);
  assert.ok(isSaved(id));
});

test('a snapshot is not deleted before a restore from it is done, and a later restore finds none', async () => {
  const { id, expires_at } = await save({ expires_in: 1 });
  const gate = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  harness.runner.captures.onRestore = () => {
    begun.resolve();
    return gate.promise;
  };
  const restoring = call('POST', '/v1/runs/restore', { snapshot_id: id });
  await begun.promise;
  await waitFor('its expiry', () => Date.now() > Date.parse(expires_at ?? ''));
  await reconciled();
  assert.ok(isSaved(id));
  assert.equal((await call('POST', '/v1/runs/restore', { snapshot_id: id })).status, 404);
  gate.resolve();
  assert.equal((await restoring).status, 201);
  await waitFor('its files to be removed', () => !isSaved(id));
});

test('a snapshot is not deleted before a pending rollback to it is done, even over a restart', async () => {
  const { id, expires_at, sandbox } = await save({ expires_in: 2 });
  const begun = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onRollback = () => {
    begun.resolve();
    return gate.promise;
  };
  const cut = call('POST', `/v1/runs/${sandbox}/rollback`, { snapshot_id: id }).catch(() => undefined);
  await begun.promise;
  await harness.stopControl();
  await harness.startControl();
  await cut;
  await waitFor('its expiry', () => Date.now() > Date.parse(expires_at ?? ''));
  await reconciled();
  assert.ok(isSaved(id));
  gate.resolve();
  await harness.waitForRecord(sandbox, ({ operation }) => operation === null);
  const done = harness.runner.captures.rollbacks.get(sandbox) ?? [];
  assert.deepEqual(
    done.map(({ capture_id }) => capture_id),
    [id],
  );
  await waitFor('its files to be removed', () => !isSaved(id));
});

test('a snapshot counts in the quota until it expires, even if its files are still there', async () => {
  await save({ expires_in: 60 });
  await using db = harness.openDatabase();
  const { organization_id } = await db
    .selectFrom('snapshots')
    .select('organization_id')
    .executeTakeFirstOrThrow();
  const store = new SnapshotStore(db);
  const now = await store.sumBytes(organization_id, Date.now());
  assert.ok((await store.sumBytes(organization_id, Date.now() + 61_000)) < now);
});

test('a snapshot that expired while the service was down is deleted at the next start', async () => {
  const { id, expires_at } = await save({ expires_at: inMs(700) });
  await harness.stopControl();
  await waitFor('its expiry', () => Date.now() > Date.parse(expires_at ?? ''));
  await harness.startControl();
  assert.equal((await get(id)).status, 404);
  await waitFor('its files to be removed', () => !isSaved(id));
});

test('invalid expiries are refused with the remedy, and nothing is saved', async () => {
  const { id, sandbox } = await save();
  const count = harness.runner.captures.saved.size;
  for (const [body, message] of [
    [{ expires_in: 0 }, /^expires_in: must be a whole number from 1 to/u],
    [{ expires_at: inMs(-1) }, /^expires_at: .*; choose a time in the future$/u],
    [{ expires_at: inMs(3651 * 24 * HOUR_MS) }, /^expires_at: .*; choose a time until 20/u],
    [{ expires_in: 5, expires_at: inMs(5000) }, /^expires_at: cannot be combined with expires_in/u],
    [{ expires_at: 'never' }, /^expires_at: must be a time such as/u],
  ] as const) {
    const answer = await call('POST', `/v1/runs/${sandbox}/snapshot`, body);
    assert.equal(answer.status, 400, JSON.stringify(body));
    assert.match(answer.body.error.message, message);
  }
  assert.equal(harness.runner.captures.saved.size, count);
  assert.equal((await patch(id, { expires_at: inMs(-1) })).status, 400);
  assert.equal((await patch(id, { expires_in: 5 })).status, 400);
  assert.equal((await get(id)).body.expires_at, null);
});
