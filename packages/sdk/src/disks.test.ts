import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorBody, LoopbackServer, SANDBOX_ID, sendJson, wireRecord } from './testing/loopback-server.ts';

const DISK = {
  name: 'data',
  team_id: 'team1',
  status: 'attached',
  size_gb: 20,
  stored_bytes: 5e9,
  attached_to: SANDBOX_ID,
  parent: null,
  durability: 'local',
  drained_version: 7,
  dirty_bytes: 4096,
  drained_at: '2026-11-21T06:31:00.000Z',
  waits_for: null,
  created_at: '2026-11-21T06:30:00.000Z',
};
const SHOWN = {
  name: 'data',
  teamId: 'team1',
  status: 'attached',
  sizeGb: 20,
  storedBytes: 5e9,
  attachedTo: SANDBOX_ID,
  parent: null,
  durability: 'local',
  drainedVersion: 7,
  dirtyBytes: 4096,
  drainedAt: '2026-11-21T06:31:00.000Z',
  waitsFor: null,
  createdAt: '2026-11-21T06:30:00.000Z',
};
const SNAPSHOT = { name: 'v1', disk: 'data', size_gb: 20, version: 7, created_at: DISK.created_at };
const SHOWN_SNAPSHOT = { name: 'v1', disk: 'data', sizeGb: 20, version: 7, createdAt: DISK.created_at };

function lastCall(server: LoopbackServer): string {
  return `${server.last.method} ${server.last.url}`;
}

test('a disk is created, fetched, grown and flushed', async () => {
  await using server = await LoopbackServer.answering(201, DISK);
  const client = server.client();
  const created = await client.createDisk({ name: 'data', sizeGb: 20 }, { idempotencyKey: 'mine' });
  assert.deepEqual(created, SHOWN);
  assert.deepEqual([lastCall(server), server.lastJson], ['POST /v1/disks', { name: 'data', size_gb: 20 }]);
  assert.equal(server.last.headers['idempotency-key'], 'mine');
  assert.deepEqual(await client.getDisk('data'), SHOWN);
  assert.equal(lastCall(server), 'GET /v1/disks/data');
  await client.growDisk('data', 40);
  assert.deepEqual([lastCall(server), server.lastJson], ['PATCH /v1/disks/data', { size_gb: 40 }]);
  await client.flushDisk('data');
  assert.equal(lastCall(server), 'POST /v1/disks/data/flush');
});

test('getDisk returns null for a disk that does not exist, and throws every other error', async () => {
  await using missing = await LoopbackServer.answering(404, errorBody('not_found', 'no such disk'));
  assert.equal(await missing.client().getDisk('data'), null);
  await using refusing = await LoopbackServer.answering(401, errorBody('unauthorized', 'revoked'));
  await assert.rejects(refusing.client().getDisk('data'), { code: 'unauthorized' });
});

test('disks and snapshots are listed over all pages', async () => {
  await using server = await LoopbackServer.start(({ url }, response) => {
    const body = url.includes('snapshots') ? [SNAPSHOT] : [DISK];
    const path = url.split('?', 1)[0];
    const headers = url.includes('cursor') ? {} : { link: `<${path}?limit=1&cursor=x>; rel="next"` };
    sendJson(response, { status: 200, body, headers });
  });
  assert.deepEqual(await server.client().listDisks(), [SHOWN, SHOWN]);
  assert.deepEqual(await server.client().listDiskSnapshots('data', { limit: 1 }), [SHOWN_SNAPSHOT]);
  assert.throws(() => server.client().listDisks({ limit: 0 }), TypeError);
});

test('a snapshot is taken and deleted, and a disk is forked', async () => {
  await using server = await LoopbackServer.answering(201, SNAPSHOT);
  const taken = await server.client().snapshotDisk('data', { name: 'v1', sync: true });
  assert.deepEqual(taken, SHOWN_SNAPSHOT);
  const wanted = ['POST /v1/disks/data/snapshots', { name: 'v1', sync: true }];
  assert.deepEqual([lastCall(server), server.lastJson], wanted);
  await using forking = await LoopbackServer.answering(201, DISK);
  assert.deepEqual(await forking.client().forkDisk('data', { snapshot: 'v1', name: 'copy' }), SHOWN);
  assert.deepEqual(
    [lastCall(forking), forking.lastJson],
    ['POST /v1/disks/data/fork', { snapshot: 'v1', name: 'copy' }],
  );
  await using deleting = await LoopbackServer.start((_, response) => void response.writeHead(204).end());
  await deleting.client().deleteDiskSnapshot('data', 'v1');
  assert.equal(lastCall(deleting), 'DELETE /v1/disks/data/snapshots/v1');
  await deleting.client().deleteDisk('data');
  assert.equal(lastCall(deleting), 'DELETE /v1/disks/data');
});

test('refusals have the code of the service', async () => {
  await using server = await LoopbackServer.answering(409, errorBody('disk_has_forks', 'copy'));
  await assert.rejects(server.client().deleteDisk('data'), { code: 'disk_has_forks', status: 409 });
});

test('a disk image is imported from bytes or a stream, and exported as a stream', async () => {
  await using server = await LoopbackServer.answering(201, DISK);
  const client = server.client();
  assert.deepEqual(await client.importDisk('data', new Uint8Array([1, 2]), { format: 'qcow2' }), SHOWN);
  assert.deepEqual(
    [lastCall(server), server.last.body.length],
    ['PUT /v1/disks/data/content?format=qcow2', 2],
  );
  await client.importDisk('data', new Blob(['abc']).stream());
  assert.deepEqual([lastCall(server), server.last.body.toString()], ['PUT /v1/disks/data/content', 'abc']);
  const image = await client.exportDisk('data', { snapshot: 'v1', format: 'raw' });
  assert.equal((await new Response(image).text()).length, JSON.stringify(DISK).length);
  assert.equal(lastCall(server), 'GET /v1/disks/data/content?format=raw&snapshot=v1');
});

test('invalid names, sizes and options are refused before a request is sent', async () => {
  await using server = await LoopbackServer.answering(200, DISK);
  const client = server.client();
  await assert.rejects(client.getDisk(''), TypeError);
  await assert.rejects(client.growDisk('data', Number.NaN), TypeError);
  const misspelt = { name: 'data', sizeGB: 1 } as unknown as Parameters<typeof client.createDisk>[0];
  await assert.rejects(client.createDisk(misspelt), /unknown option "sizeGB"/u);
  assert.equal(server.seen.length, 0);
});

test('a sandbox is created with a disk or on a fork of one, and shows it', async () => {
  const disk = { name: 'data', status: 'detaching', dirty_bytes: 5, waits_for: 'the store', recovered: null };
  const recovered = { version: 3, drained_at: DISK.drained_at };
  await using server = await LoopbackServer.answering(201, wireRecord({ disk: { ...disk, recovered } }));
  const sandbox = await server.client().sandboxes.create({ disk: 'data' });
  assert.deepEqual(server.lastJson, { image: 'node:22-slim', disk: 'data' });
  assert.deepEqual(sandbox.record.disk, {
    name: 'data',
    status: 'detaching',
    dirtyBytes: 5,
    waitsFor: 'the store',
    recovered: { version: 3, drainedAt: DISK.drained_at },
  });
  await server.client().sandboxes.create({ forkFromDisk: 'data', diskSnapshot: 'v1', disk: 'copy' });
  const wanted = { image: 'node:22-slim', fork_from_disk: 'data', disk_snapshot: 'v1', disk: 'copy' };
  assert.deepEqual(server.lastJson, wanted);
  await server.client().sandboxes.restore('snap1', { disk: 'copy' });
  assert.deepEqual(server.lastJson, { snapshot_id: 'snap1', disk: 'copy' });
  await sandbox.resume({ disk: 'fresh' });
  assert.equal(lastCall(server), `POST /v1/runs/${SANDBOX_ID}/resume?disk=fresh`);
});

test('a fork names the disks of its children', async () => {
  await using server = await LoopbackServer.answering(201, [wireRecord(), wireRecord()]);
  await server.sandbox().fork(2, { disks: ['a', 'b'] });
  assert.deepEqual(server.lastJson, { count: 2, disks: ['a', 'b'] });
});
