/** API keys of teams, and the end of open requests when their key is revoked or expires. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { ExecFrame } from '@coppice/contract';
import { AccountClient } from '../../testing/requests/account-client.ts';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../../testing/control-harness.ts';
import { SocketClient } from '../../testing/requests/socket-client.ts';

const ENDS_WITHIN_MS = 5_000;

let harness: ControlHarness;
let owner: AccountClient;
before(async () => {
  harness = await startHarness();
  harness.runner.startsAtHead = true;
  // Commands run until they are killed.
  harness.runner.onExec = () => undefined;
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
});
after(() => harness[Symbol.asyncDispose]());

const makeKey = async (body: object = { name: 'ci' }) =>
  (await owner.call('POST', `${owner.team}/keys`, body)).body;
const revoke = (id: string) => owner.call('DELETE', `${owner.team}/keys/${id}`);
const list = async (apiKey: string) => (await harness.call('GET', '/v1/runs', { apiKey })).status;

test('a key is shown once, listed by its last characters, and works until it is revoked', async () => {
  const { id, key, last4 } = await makeKey();
  assert.match(key, /^cop_live_us_[A-Za-z0-9]{40}$/);
  assert.equal(key.slice(-4), last4);
  assert.equal(await list(key), 200);
  const listed = await owner.call('GET', `${owner.team}/keys`);
  const found = listed.body.find((record: { id: string }) => record.id === id);
  assert.deepEqual([found.name, found.last4, found.revoked_at, found.key], ['ci', last4, null, undefined]);
  assert.ok(!JSON.stringify(listed.body).includes(key));
  assert.equal((await revoke(id)).status, 204);
  assert.equal(await list(key), 401);
  assert.equal((await revoke(id)).status, 204);
  assert.ok(!harness.logLines.join('').includes(key));
});

test('a key with an expiry is valid until then', async () => {
  const { key } = await makeKey({ name: 'short', expires_in: 1 });
  assert.equal(await list(key), 200);
  await waitFor('the end of the key', async () => (await list(key)) === 401);
});

test('a rotation creates a new key and keeps the old one valid for the overlap', async () => {
  const old = await makeKey({ name: 'rotated' });
  const rotate = (body?: object) => owner.call('POST', `${owner.team}/keys/${old.id}/rotate`, body);
  const { body } = await rotate({ overlap_seconds: 1 });
  assert.deepEqual([body.name, body.expires_at], ['rotated', null]);
  assert.deepEqual([await list(old.key), await list(body.key)], [200, 200]);
  await waitFor('the end of the overlap', async () => (await list(old.key)) === 401);
  assert.equal(await list(body.key), 200);
  const again = await rotate();
  assert.deepEqual([again.status, again.body.error.code], [409, 'invalid_state']);
});

test('a rotation without an overlap revokes the old key at once', async () => {
  const old = await makeKey();
  const { body } = await owner.call('POST', `${owner.team}/keys/${old.id}/rotate`);
  assert.deepEqual([await list(old.key), await list(body.key)], [401, 200]);
});

test('a key has no limits unless they are set; lists show them, and a rotation keeps them', async () => {
  const limitsOf = ({ scope, team_only }: { scope: string; team_only: boolean }) => [scope, team_only];
  assert.deepEqual(limitsOf(await makeKey()), ['full', false]);
  const limited = await makeKey({ name: 'limited', scope: 'read', team_only: true });
  const { body: listed } = await owner.call('GET', `${owner.team}/keys`);
  assert.deepEqual(limitsOf(listed.find(({ id }: { id: string }) => id === limited.id)), ['read', true]);
  const { body: rotated } = await owner.call('POST', `${owner.team}/keys/${limited.id}/rotate`);
  assert.deepEqual(limitsOf(rotated), ['read', true]);
  const create = { apiKey: rotated.key, body: { image: 'node:22-slim' } };
  assert.equal((await harness.call('POST', '/v1/runs', create)).status, 403);
  assert.equal(await list(rotated.key), 200);
});

test('unknown limits are refused by name', async () => {
  for (const [body, pattern] of [
    [{ scope: 'write' }, /scope.*must be full or read/u],
    [{ scope: ['read'] }, /scope/u],
    [{ team_only: 'yes' }, /team_only.*must be true or false/u],
    [{ teamOnly: true }, /teamOnly/u],
  ] as const) {
    const answer = await owner.call('POST', `${owner.team}/keys`, { name: 'a key', ...body });
    assert.equal(answer.status, 400);
    assert.match(answer.body.error.message, pattern);
  }
  const { id } = await makeKey();
  const rotation = await owner.call('POST', `${owner.team}/keys/${id}/rotate`, { scope: 'full' });
  assert.equal(rotation.status, 400);
});

test('the last use of a key is stored by the time control stops', async () => {
  const { id, key } = await makeKey();
  const find = async () =>
    (await owner.call('GET', `${owner.team}/keys`)).body.find((record: { id: string }) => record.id === id);
  assert.equal((await find()).last_used_at, null);
  const from = Date.now();
  await list(key);
  await harness.stopControl();
  await harness.startControl();
  await waitFor('health', async () => (await harness.call('GET', '/healthz')).status === 200);
  const at = Date.parse((await find()).last_used_at);
  assert.ok(at >= from && at <= Date.now());
});

test('a streamed command ends within 5 s after its key is revoked, and says why', async () => {
  const { id: keyId, key } = await makeKey();
  const { id } = await harness.create();
  const answered = harness.fetch('POST', `/v1/runs/${id}/exec/stream`, {
    apiKey: key,
    body: { command: 'sleep 60' },
  });
  const stream = await answered;
  const untouched = harness.fetch('POST', `/v1/runs/${id}/exec/stream`, { body: { command: 'sleep 60' } });
  const other = (await untouched).body?.getReader();
  await revoke(keyId);
  const started = performance.now();
  const text = await stream.text();
  assert.ok(performance.now() - started < ENDS_WITHIN_MS);
  const frame = JSON.parse(text.trim().replace('data: ', '')) as ExecFrame;
  assert.equal(frame.type === 'error' && frame.error.code, 'unauthorized');
  assert.match(frame.data, /API key was revoked or has expired/);
  const quiet = new Promise((resolve) => void setTimeout(resolve, 200, 'quiet'));
  assert.equal(await Promise.race([other?.read(), quiet]), 'quiet');
  await other?.cancel();
});

test('a socket ends when its key expires, also one that was opened with a ticket', async () => {
  const { key } = await makeKey({ name: 'short', expires_in: 2 });
  const { id } = await harness.create();
  const path = `/v1/runs/${id}/exec/ws?command=sleep`;
  const { ticket } = (await harness.call('POST', `/v1/runs/${id}/tickets`, { apiKey: key })).body;
  const unused = (await harness.call('POST', `/v1/runs/${id}/tickets`, { apiKey: key })).body.ticket;
  const sockets = [
    new SocketClient<ExecFrame>(harness, path, { key }),
    new SocketClient<ExecFrame>(harness, `${path}&ticket=${ticket}`, { key: null }),
  ];
  for (const { closed, received } of sockets) {
    assert.equal((await closed).code, 1008);
    assert.match(received.at(-1)?.data ?? '', /API key was revoked or has expired/);
  }
  const late = new SocketClient(harness, `${path}&ticket=${unused}`, { key: null });
  await assert.rejects(late.closed, /401/);
});

test('an open request that does not end by itself is cut off', async () => {
  const { id: keyId, key } = await makeKey();
  const { id } = await harness.create();
  const body = new ReadableStream({ start: (controller) => controller.enqueue(Buffer.from('begin')) });
  const upload = harness.fetch('POST', `/v1/runs/${id}/files/upload?path=/x`, { apiKey: key, raw: body });
  upload.catch(() => undefined);
  await waitFor('the upload', () => harness.runner.files.uploads.length > 0);
  await revoke(keyId);
  const started = performance.now();
  await assert.rejects(upload);
  assert.ok(performance.now() - started < ENDS_WITHIN_MS);
});

test('a preview link ends with the key that it was made with', async () => {
  const { id: keyId, key } = await makeKey();
  const { id } = await harness.create();
  const { body } = await harness.call('POST', `/v1/runs/${id}/ports/80/preview`, { apiKey: key });
  const { pathname, search, host } = new URL(body.url);
  const open = async (): Promise<number> => {
    const { hostname, port } = new URL(harness.control?.address ?? '');
    const { request } = await import('node:http');
    return new Promise((resolve, reject) => {
      const sent = request({ hostname, port, path: pathname + search, headers: { host } }, (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      });
      sent.on('error', reject).end();
    });
  };
  assert.equal(await open(), 303);
  await revoke(keyId);
  assert.equal(await open(), 401);
});

test('after too many wrong keys from one address, further wrong ones get 429', async () => {
  await using small = await startHarness({ wrongKeysPerMinute: 5 });
  const wrong = `cop_live_us_${'0'.repeat(40)}`;
  const statuses: number[] = [];
  for (let round = 0; round < 7; round += 1)
    statuses.push((await small.call('GET', '/v1/runs', { apiKey: wrong })).status);
  assert.deepEqual(statuses, [401, 401, 401, 401, 401, 429, 429]);
});
