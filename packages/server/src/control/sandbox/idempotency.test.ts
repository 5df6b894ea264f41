import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import { DATABASE_NOW } from '../ownership/database-time.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => {
  harness.runner.onCreate = () => undefined;
});

const image = 'node:22-slim';
function post(key: string, body: Record<string, unknown> = { image }, apiKey?: string) {
  const headers = { 'idempotency-key': key };
  return harness.call('POST', '/v1/runs', { body, headers, ...(apiKey === undefined ? {} : { apiKey }) });
}

test('requests with the same key and body get the same answer and create one sandbox', async () => {
  const first = await post('same', { image, labels: { a: '1', b: '2' } });
  const second = await post('same', { labels: { b: '2', a: '1' }, image });
  assert.equal(first.status, 201);
  assert.equal(second.status, 201);
  assert.deepEqual(second.body, first.body);
  assert.equal(second.headers.get('idempotency-replayed'), 'true');
  assert.equal(harness.runner.vms.size, 1);
});

test('the same key with another body is 422', async () => {
  await post('other');
  const answer = await post('other', { image, vcpus: 2 });
  assert.equal(answer.status, 422);
  assert.equal(answer.body.error.code, 'idempotency_mismatch');
});

test('a duplicate that arrives during the first request waits for it and gets its answer', async () => {
  const gate = Promise.withResolvers<void>();
  harness.runner.onCreate = () => gate.promise;
  const creates = harness.runner.requests.filter((request) => request.startsWith('PUT /vms')).length;
  const calls = [post('twin'), post('twin'), post('twin')];
  await waitFor(
    'the create',
    () => harness.runner.requests.filter((one) => one.startsWith('PUT /vms')).length > creates,
  );
  assert.equal((await post('twin', { image, vcpus: 2 })).status, 422);
  gate.resolve();
  const answers = await Promise.all(calls);
  assert.equal(new Set(answers.map((answer) => answer.body.id)).size, 1);
  assert.deepEqual(
    answers.map((answer) => answer.status),
    [201, 201, 201],
  );
});

test('the same key of two organizations is two keys', async () => {
  const mine = await post('shared');
  const theirs = await post('shared', { image }, await harness.addOrganization());
  assert.equal(theirs.status, 201);
  assert.notEqual(theirs.body.id, mine.body.id);
});

test('a lasting error is replayed, a temporary error is tried again', async () => {
  harness.runner.onCreate = () => {
    throw new AppError('image_not_found', 'the registry has no such image');
  };
  assert.equal((await post('lasting')).status, 404);
  harness.runner.onCreate = () => {
    throw new AppError('capacity', 'no room');
  };
  assert.equal((await post('passing')).status, 429);
  harness.runner.onCreate = () => undefined;
  assert.equal((await post('lasting')).status, 404);
  assert.equal((await post('passing')).status, 201);
});

test('a key older than a day does not count', async () => {
  const first = await post('old');
  await using db = harness.openDatabase();
  const old = Date.now() - 25 * 3_600_000;
  await db.updateTable('idempotency_keys').set({ created_at: old }).where('key', '=', 'old').execute();
  assert.notEqual((await post('old')).body.id, first.body.id);
});

test('a key whose control was killed after the create returns the sandbox that was created', async () => {
  const first = await post('killed');
  await using db = harness.openDatabase();
  await db
    .updateTable('idempotency_keys')
    .set({ status_code: null, answer: null })
    .where('key', '=', 'killed')
    .execute();
  const second = await post('killed');
  assert.equal(second.status, 201);
  assert.equal(second.body.id, first.body.id);
});

async function leaveIncomplete(key: string, controlId: string): Promise<void> {
  await using db = harness.openDatabase();
  const change = { status_code: null, answer: null, control_id: controlId };
  await db.updateTable('idempotency_keys').set(change).where('key', '=', key).execute();
}

async function addControl(id: string, leaseMs: number): Promise<void> {
  await using db = harness.openDatabase();
  await sql`
    INSERT INTO controls (id, node_id, version, started_at, lease_until)
    VALUES (${id}, ${id}, '0', 0, ${DATABASE_NOW} + ${leaseMs}::bigint)`.execute(db);
}

test('a duplicate waits for the first request at another control that is alive, and gets its answer', async () => {
  const first = await post('elsewhere');
  await addControl('ctl-alive', 60_000);
  await leaveIncomplete('elsewhere', 'ctl-alive');
  let isAnswered = false;
  const second = post('elsewhere').finally(() => (isAnswered = true));
  await delay(500);
  assert.equal(isAnswered, false);
  await using db = harness.openDatabase();
  await db
    .updateTable('idempotency_keys')
    .set({ status_code: 201, answer: JSON.stringify({ ...first.body, of: 'the other control' }) })
    .where('key', '=', 'elsewhere')
    .execute();
  assert.deepEqual((await second).body.id, first.body.id);
});

test('a key of a control whose lease is over is taken over', async () => {
  const first = await post('orphaned');
  await addControl('ctl-gone', -1);
  await leaveIncomplete('orphaned', 'ctl-gone');
  const second = await post('orphaned');
  assert.deepEqual([second.status, second.body.id], [201, first.body.id]);
});
