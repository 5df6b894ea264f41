import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sandbox } from './sandbox.ts';
import type { SnapshotInfo } from './snapshots.ts';
import {
  errorBody,
  LoopbackServer,
  SANDBOX_ID,
  sendJson,
  TEST_KEY,
  wireRecord,
} from '../testing/loopback-server.ts';

const SNAPSHOT_ID = 'snap0123456789abcdef0123';
const WIRE = {
  id: SNAPSHOT_ID,
  run_id: SANDBOX_ID,
  name: 'installed',
  image: 'docker.io/library/node:22-slim@sha256:00',
  vcpus: 2,
  mem_mib: 2048,
  disk_mib: 4096,
  size_bytes: 5e8,
  bound_to: { kernel: '6.12.1', qemu_version: '10.0' },
  created_at: '2026-11-21T06:32:00.000Z',
};
const SHOWN: SnapshotInfo = {
  id: SNAPSHOT_ID,
  runId: SANDBOX_ID,
  name: 'installed',
  image: 'docker.io/library/node:22-slim@sha256:00',
  vcpus: 2,
  memMiB: 2048,
  diskMiB: 4096,
  sizeBytes: 5e8,
  boundTo: { kernel: '6.12.1', qemu_version: '10.0' },
  createdAt: '2026-11-21T06:32:00.000Z',
  expiresAt: null,
  disk: null,
};

test('a snapshot is taken with or without a name and a key', async () => {
  await using server = await LoopbackServer.answering(201, WIRE);
  const sandbox = server.sandbox();
  assert.deepEqual(await sandbox.snapshot({ name: 'installed', idempotencyKey: 'mine' }), SHOWN);
  assert.equal(`${server.last.method} ${server.last.url}`, `POST /v1/runs/${SANDBOX_ID}/snapshot`);
  assert.deepEqual(server.lastJson, { name: 'installed' });
  await sandbox.snapshot();
  assert.deepEqual(server.lastJson, {});
  const [mine, its] = server.seen.map((request) => request.headers['idempotency-key']);
  assert.equal(mine, 'mine');
  assert.match(String(its), /^[0-9a-f]{32}$/);
});

test('a snapshot with an expiry is taken, found, and changed', async () => {
  const end = '2026-12-01T00:00:00.000Z';
  await using server = await LoopbackServer.answering(200, { ...WIRE, expires_at: end });
  const expected = { ...SHOWN, expiresAt: end };
  assert.deepEqual(await server.sandbox().snapshot({ expiresIn: 60 }), expected);
  assert.deepEqual(server.lastJson, { expires_in: 60 });
  const { snapshots } = server.client();
  assert.deepEqual(await snapshots.get(SNAPSHOT_ID), expected);
  assert.equal(`${server.last.method} ${server.last.url}`, `GET /v1/snapshots/${SNAPSHOT_ID}`);
  assert.deepEqual(await snapshots.update(SNAPSHOT_ID, { name: null, expiresAt: new Date(end) }), expected);
  assert.equal(`${server.last.method} ${server.last.url}`, `PATCH /v1/snapshots/${SNAPSHOT_ID}`);
  assert.deepEqual(server.lastJson, { name: null, expires_at: end });
  await assert.rejects(
    snapshots.update(SNAPSHOT_ID, { expiresIn: 5 } as object),
    /unknown option "expiresIn"/,
  );
});

test('get returns null for a missing snapshot and throws on every other error', async () => {
  await using missing = await LoopbackServer.answering(404, errorBody('not_found', 'no such snapshot'));
  assert.equal(await missing.client().snapshots.get(SNAPSHOT_ID), null);
  await using refusing = await LoopbackServer.answering(401, errorBody('unauthorized', 'revoked'));
  await assert.rejects(refusing.client().snapshots.get(SNAPSHOT_ID), { code: 'unauthorized' });
});

test('an exceeded quota is an error with the service’s code', async () => {
  await using server = await LoopbackServer.answering(429, errorBody('capacity', '100 of 100 GiB'));
  await assert.rejects(server.sandbox().snapshot(), { code: 'capacity', detail: '100 of 100 GiB' });
});

test('snapshots are listed over all pages with fields in camelCase', async () => {
  await using server = await LoopbackServer.start(({ url }, response) => {
    const isLast = url.includes('cursor');
    const link = '</v1/snapshots?run_id=run1&cursor=a>; rel="next"';
    sendJson(response, { body: [WIRE], headers: isLast ? {} : { link } });
  });
  const { snapshots } = server.client();
  assert.deepEqual(await snapshots.list({ runId: 'run1' }), [SHOWN, SHOWN]);
  assert.deepEqual(
    server.seen.map(({ method, url }) => [method, url]),
    [
      ['GET', '/v1/snapshots?run_id=run1'],
      ['GET', '/v1/snapshots?run_id=run1&cursor=a'],
    ],
  );
  for await (const { id } of snapshots.list({ limit: 1 })) assert.equal(id, SNAPSHOT_ID);
  assert.equal(server.last.url, '/v1/snapshots?limit=1');
  assert.throws(() => snapshots.list({ limit: 0 }), /limit/);
});

test('delete returns nothing, and its id cannot change the path of the request', async () => {
  await using server = await LoopbackServer.start((_, response) => void response.writeHead(204).end());
  const { snapshots } = server.client();
  assert.equal(await snapshots.delete(SNAPSHOT_ID), undefined);
  assert.equal(`${server.last.method} ${server.last.url}`, `DELETE /v1/snapshots/${SNAPSHOT_ID}`);
  await assert.rejects(snapshots.delete('..'), /snapshot id/);
  await using empty = await LoopbackServer.answering(404, errorBody('not_found', 'no such snapshot'));
  await assert.rejects(empty.client().snapshots.delete(SNAPSHOT_ID), { code: 'not_found' });
});

test('restore sends the snapshot and the changed settings', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord({ parent_id: 'run1' }));
  const { sandboxes } = server.client();
  const options = { timeout: 0, labels: { a_b: 'c' }, maxLifetime: null, autoHibernate: false };
  const sandbox = await sandboxes.restore(SNAPSHOT_ID, options, { idempotencyKey: 'mine' });
  assert.deepEqual([sandbox.id, sandbox.record.parentId], [SANDBOX_ID, 'run1']);
  assert.equal(`${server.last.method} ${server.last.url}`, 'POST /v1/runs/restore');
  assert.equal(server.last.headers['idempotency-key'], 'mine');
  assert.deepEqual(server.lastJson, {
    snapshot_id: SNAPSHOT_ID,
    timeout: 0,
    labels: { a_b: 'c' },
    max_lifetime: null,
    auto_hibernate: false,
  });
  await assert.rejects(sandboxes.restore(SNAPSHOT_ID, { snapshotId: 'x' } as object), /snapshotId/);
});

test('Sandbox.restore uses a new client', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord());
  const sandbox = await Sandbox.restore(SNAPSHOT_ID, {}, { apiKey: TEST_KEY, baseUrl: server.url });
  assert.equal(sandbox.id, SANDBOX_ID);
  assert.deepEqual(server.lastJson, { snapshot_id: SNAPSHOT_ID });
});

test('rollback sends the snapshot and a new or the given key, and stores the new record', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord({ timeout: 7 }));
  const sandbox = server.sandbox();
  assert.equal((await sandbox.rollback(SNAPSHOT_ID)).timeout, 7);
  assert.equal(sandbox.record.timeout, 7);
  assert.equal(`${server.last.method} ${server.last.url}`, `POST /v1/runs/${SANDBOX_ID}/rollback`);
  assert.deepEqual(server.lastJson, { snapshot_id: SNAPSHOT_ID });
  assert.match(String(server.last.headers['idempotency-key']), /^[0-9a-f]{32}$/);
  await sandbox.rollback(SNAPSHOT_ID, { idempotencyKey: 'mine' });
  assert.equal(server.last.headers['idempotency-key'], 'mine');
});

test('a rollback is retried with the same key when it was not started, and not when it may have been', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    const [status, code]: [number, string] =
      server.seen.length === 1 ? [503, 'unavailable'] : [504, 'outcome_unknown'];
    sendJson(response, { status, headers: { 'retry-after': '0' }, body: errorBody(code, 'late') });
  });
  await assert.rejects(server.sandbox().rollback(SNAPSHOT_ID), { code: 'outcome_unknown', status: 504 });
  const keys = server.seen.map(({ headers }) => headers['idempotency-key']);
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
});
