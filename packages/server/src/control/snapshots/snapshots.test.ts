/** Snapshots as callers see them: made, listed, restored, deleted, and counted against a quota. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { AppError, type SandboxRecord, type SnapshotRecord } from '@coppice/contract';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.captures.reset());

const snapshot = (id: string, body?: object, headers: Record<string, string> = {}) =>
  harness.call('POST', `/v1/runs/${id}/snapshot`, { ...(body === undefined ? {} : { body }), headers });
const restore = (body: object, headers: Record<string, string> = {}) =>
  harness.call('POST', '/v1/runs/restore', { body, headers });
const remove = (id: string) => harness.call('DELETE', `/v1/snapshots/${id}`);
const list = (query = '') => harness.call('GET', `/v1/snapshots${query}`);
const idsOf = ({ body }: Answer) => (body as SnapshotRecord[]).map(({ id }) => id);

test('a snapshot names its sandbox and what it is bound to, and its sandbox keeps running', async () => {
  const { id, image } = await harness.create({ vcpus: 2, mem_mib: 512, disk_mib: 2048 });
  const { status, body } = await snapshot(id, { name: 'before the upgrade' });
  assert.equal(status, 201);
  const { created_at, ...record } = body as SnapshotRecord;
  assert.deepEqual(record, {
    id: record.id,
    run_id: id,
    name: 'before the upgrade',
    image,
    vcpus: 2,
    mem_mib: 512,
    disk_mib: 2048,
    size_bytes: 1 << 20,
    disk: null,
    bound_to: { qemu: '10.0.2', kernel: '6.12' },
    expires_at: null,
  });
  assert.match(record.id, /^snap[0-9a-f]{20}$/);
  assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'running');
  assert.equal((await snapshot(id)).body.name, null);
});

test('a restored sandbox is a new one, with the settings of its origin unless the request sets others', async () => {
  const { id } = await harness.create({
    timeout: 77,
    max_lifetime: 900,
    labels: { team: 'a' },
    auto_hibernate: true,
  });
  const { body: saved } = await snapshot(id);
  await harness.call('DELETE', `/v1/runs/${id}`);
  const plain = await restore({ snapshot_id: saved.id });
  assert.equal(plain.status, 201);
  assert.equal(plain.headers.get('location'), `/v1/runs/${plain.body.id}`);
  const shown = ({ body }: Answer) => {
    const { parent_id, timeout, max_lifetime, labels, auto_hibernate, status } = body as SandboxRecord;
    return { parent_id, timeout, max_lifetime, labels, auto_hibernate, status };
  };
  const common = { parent_id: id, status: 'running' };
  const old = { timeout: 77, max_lifetime: 900, labels: { team: 'a' }, auto_hibernate: true };
  assert.deepEqual(shown(plain), { ...common, ...old });
  const changes = { timeout: 0, max_lifetime: null, labels: {}, auto_hibernate: false };
  const changed = await restore({ snapshot_id: saved.id, ...changes });
  assert.deepEqual(shown(changed), { ...common, ...changes });
  assert.notEqual(changed.body.id, plain.body.id);
  const exec = await harness.call('POST', `/v1/runs/${plain.body.id}/exec`, { body: { command: 'true' } });
  assert.equal(exec.status, 200);
});

test('a restore of an unknown snapshot gets 404, and of one that cannot be used here 409', async () => {
  const { id } = await harness.create();
  const { body: saved } = await snapshot(id);
  assert.equal((await restore({ snapshot_id: `snap${'0'.repeat(20)}` })).status, 404);
  harness.runner.captures.onRestore = () => {
    throw new AppError('snapshot_unusable', 'needs QEMU 10.0.2, which is not on this machine');
  };
  const unusable = await restore({ snapshot_id: saved.id });
  assert.equal(unusable.status, 409);
  assert.equal(unusable.body.error.code, 'snapshot_unusable');
  assert.match(unusable.body.error.message, /QEMU 10\.0\.2/);
  harness.runner.captures.reset();
  harness.runner.captures.saved.delete(saved.id);
  const gone = await restore({ snapshot_id: saved.id });
  assert.equal(gone.status, 409);
  assert.equal(gone.body.error.code, 'snapshot_unusable');
  assert.deepEqual(idsOf(await list(`?run_id=${id}`)), [saved.id]);
});

test('a restore without room for it leaves no record', async (t) => {
  const { id } = await harness.create();
  const { body: saved } = await snapshot(id);
  t.after(() => (harness.runner.onAdmission = () => undefined));
  harness.runner.onAdmission = () => {
    throw new AppError('capacity', 'no room in memory');
  };
  const before = (await harness.call('GET', '/v1/runs?status=failed')).body;
  assert.equal((await restore({ snapshot_id: saved.id })).status, 429);
  assert.deepEqual((await harness.call('GET', '/v1/runs?status=failed')).body, before);
});

test('a list is newest first, in pages, of one sandbox or all, and never of another organization', async () => {
  const apiKey = await harness.addOrganization();
  const create = async () =>
    (await harness.call('POST', '/v1/runs', { apiKey, body: { image: 'node:22-slim' } })).body.id as string;
  const one = await create();
  const other = await create();
  const save = async (id: string) =>
    (await harness.call('POST', `/v1/runs/${id}/snapshot`, { apiKey })).body.id as string;
  const ids = [await save(one), await save(other), await save(one)];
  const page = (query: string) => harness.call('GET', `/v1/snapshots${query}`, { apiKey });
  const first = await page('?limit=2');
  assert.deepEqual(idsOf(first), [ids[2], ids[1]]);
  const next = /^<([^>]+)>; rel="next"$/.exec(first.headers.get('link') ?? '')?.[1] ?? '';
  const second = await harness.call('GET', next, { apiKey });
  assert.deepEqual(idsOf(second), [ids[0]]);
  assert.equal(second.headers.get('link'), null);
  assert.deepEqual(idsOf(await page(`?run_id=${one}`)), [ids[2], ids[0]]);
  assert.equal((await page('?run=1')).status, 400);
  const theirs = ids[0] ?? '';
  assert.ok(!idsOf(await list()).includes(theirs));
  assert.equal((await remove(theirs)).status, 404);
  assert.equal((await restore({ snapshot_id: theirs })).status, 404);
});

test('a deleted snapshot is gone with its files, and deleting it again is 404', async () => {
  const { id } = await harness.create();
  const { body: saved } = await snapshot(id);
  const removed = await remove(saved.id);
  assert.equal(removed.status, 204);
  assert.equal(removed.body, undefined);
  assert.ok(!harness.runner.captures.saved.has(saved.id));
  assert.equal((await remove(saved.id)).status, 404);
  assert.equal((await restore({ snapshot_id: saved.id })).status, 404);
});

test('two deletes at once: one deletes, the other finds nothing', async () => {
  const { id } = await harness.create();
  const { body: saved } = await snapshot(id);
  const statuses = (await Promise.all([remove(saved.id), remove(saved.id)])).map(({ status }) => status);
  assert.deepEqual(new Set(statuses), new Set([204, 404]));
});

test('a delete succeeds while the runner is down, and the runner removes the files when it is back', async () => {
  const { id } = await harness.create();
  const { body: saved } = await snapshot(id);
  harness.runner.captures.onRemove = () => {
    throw new AppError('unavailable', 'the runner restarts');
  };
  assert.equal((await remove(saved.id)).status, 204);
  assert.deepEqual(idsOf(await list(`?run_id=${id}`)), []);
  assert.ok(harness.runner.captures.saved.has(saved.id));
  harness.runner.captures.reset();
  await waitFor('its files to be gone', () => !harness.runner.captures.saved.has(saved.id));
});

test('a snapshot is listed only when it is complete, and one that fails leaves nothing', async () => {
  const { id } = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onSnapshot = () => gate.promise;
  const saving = snapshot(id);
  await harness.waitForRecord(id, (record) => record.operation === 'snapshotting');
  assert.deepEqual(idsOf(await list(`?run_id=${id}`)), []);
  const exec = await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
  assert.equal(exec.status, 200);
  gate.resolve();
  const { body: saved } = await saving;
  harness.runner.captures.onSnapshot = () => {
    throw new AppError('capacity', "the host's disk has no room; the sandbox runs on");
  };
  const failed = await snapshot(id);
  assert.equal(failed.status, 429);
  assert.match(failed.body.error.message, /runs on/);
  assert.deepEqual(idsOf(await list(`?run_id=${id}`)), [saved.id]);
  await using db = harness.openDatabase();
  const rows = await db.selectFrom('snapshots').select('id').where('run_id', '=', id).execute();
  assert.deepEqual(rows, [{ id: saved.id }]);
});

test('the same Idempotency-Key gets the same snapshot and the same restore', async () => {
  const { id } = await harness.create();
  const headers = { 'idempotency-key': 'once' };
  const first = await snapshot(id, { name: 'a' }, headers);
  const again = await snapshot(id, { name: 'a' }, headers);
  assert.deepEqual(again.body, first.body);
  assert.equal(again.headers.get('idempotency-replayed'), 'true');
  assert.equal((await snapshot(id, { name: 'b' }, headers)).status, 422);
  {
    await using db = harness.openDatabase();
    const unheard = { status_code: null, answer: null };
    await db.updateTable('idempotency_keys').set(unheard).where('key', '=', 'once').execute();
  }
  assert.deepEqual((await snapshot(id, { name: 'a' }, headers)).body, first.body);
  const request = { snapshot_id: first.body.id };
  const restored = await restore(request, headers);
  assert.equal((await restore(request, headers)).body.id, restored.body.id);
});

test('snapshots beyond the quota are refused with the bytes in use, and deleting one makes room', async () => {
  const MEBIBYTE = 1 << 20;
  await using small = await startHarness({ snapshotBytesPerOrganization: 3 * MEBIBYTE });
  const { id } = await small.create();
  const save = (body = {}) => small.call('POST', `/v1/runs/${id}/snapshot`, { body });
  small.runner.captures.sizeBytes = 2 * MEBIBYTE;
  const first = await save();
  assert.equal(first.status, 201);
  const over = await save();
  assert.equal(over.status, 429);
  assert.equal(over.body.error.code, 'capacity');
  assert.match(over.body.error.message, /take 2097152 bytes, 2097152 more are needed, the limit is 3145728/);
  assert.equal(small.runner.captures.saved.size, 1);
  small.runner.captures.sizeBytes = MEBIBYTE;
  assert.equal((await save()).status, 201);
  const full = await save();
  assert.match(full.body.error.message, /take 3145728 bytes, the limit is 3145728; delete some/);
  assert.equal((await small.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } })).status, 200);
  await small.call('DELETE', `/v1/snapshots/${first.body.id}`);
  const twins = await Promise.all([save(), save(), save()]);
  assert.deepEqual(
    twins.map(({ status }) => status).toSorted((a, b) => a - b),
    [201, 201, 429],
  );
});
