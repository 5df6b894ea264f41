import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CoppiceError } from '../transport/errors.ts';
import { Sandbox } from './sandbox.ts';
import {
  errorBody,
  LoopbackServer,
  SANDBOX_ID,
  sendJson,
  TEST_KEY,
  wireRecord,
} from '../testing/loopback-server.ts';

const DESTROYED = {
  status: 'destroyed',
  cpu_ms: 12,
  mem_peak_bytes: 3e8,
  uptime_ms: 4567,
  cost_cents: 0.00507,
};

/** Starts a service with a sandbox whose DELETE answers 409 and whose record then has `status`. */
async function startRefusing(status: string): Promise<LoopbackServer> {
  return LoopbackServer.start((request, response) => {
    if (request.method === 'GET') sendJson(response, { body: wireRecord({ status }) });
    else sendJson(response, { status: 409, body: errorBody('invalid_state', `the sandbox is ${status}`) });
  });
}

test('create sends every option under its wire name and does not change labels', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord());
  const labels = { camelCase: 'a', snake_case: 'b', __proto__x: 'c' };
  const place = { env: { camelCase: 'a', SNAKE_CASE: 'b' }, cwd: '/srv' };
  const size = { vcpus: 2, memMiB: 512, diskMiB: 64 };
  const expiresAt = new Date('2026-11-21T06:30:00Z');
  const life = { timeout: 0, maxLifetime: 60, expiresAt, autoHibernate: true };
  await server.client().sandboxes.create({ image: 'a:1', name: 'ci', ...size, ...life, labels, ...place });
  assert.equal(`${server.last.method} ${server.last.url}`, 'POST /v1/runs');
  assert.equal(server.last.headers['content-type'], 'application/json');
  assert.deepEqual(server.lastJson, {
    image: 'a:1',
    name: 'ci',
    vcpus: 2,
    mem_mib: 512,
    disk_mib: 64,
    timeout: 0,
    labels,
    max_lifetime: 60,
    expires_at: '2026-11-21T06:30:00.000Z',
    auto_hibernate: true,
    ...place,
  });
});

test('create without options sends node:22-slim and leaves all other settings to the service', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord());
  await server.client().sandboxes.create({ vcpus: undefined, image: undefined });
  assert.deepEqual(server.lastJson, { image: 'node:22-slim' });
});

test('create sends the given idempotency key, or a new one for each call', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord());
  const { sandboxes } = server.client();
  await sandboxes.create({}, { idempotencyKey: 'mine' });
  assert.equal(server.last.headers['idempotency-key'], 'mine');
  await sandboxes.create();
  await sandboxes.create();
  const [, first, second] = server.seen.map((request) => request.headers['idempotency-key']);
  assert.notEqual(first, second);
});

test('a misspelt option, NaN and infinity are refused before a request is sent', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord());
  const misspelt = { memMib: 512 } as object;
  await assert.rejects(server.client().sandboxes.create(misspelt), /memMib.*memMiB/);
  await assert.rejects(server.client().sandboxes.create({ vcpus: Number.NaN }), /vcpus/);
  await assert.rejects(server.sandbox().setTimeout(Infinity), /timeout must be a finite number/);
  assert.equal(server.seen.length, 0);
});

test('a record has fields in camelCase, with null for missing values', async () => {
  await using server = await LoopbackServer.answering(
    200,
    wireRecord({ labels: { a_b: 'c' }, team_id: 'team1', future: 1 }),
  );
  const sandbox = await server.client().sandboxes.get(SANDBOX_ID);
  assert.deepEqual(sandbox?.record, {
    id: SANDBOX_ID,
    status: 'running',
    name: null,
    teamId: 'team1',
    image: 'docker.io/library/node:22-slim@sha256:00',
    region: 'us',
    vcpus: 2,
    memMiB: 2048,
    diskMiB: 4096,
    createMs: 81.5,
    createdAt: '2026-11-21T06:30:00.000Z',
    endedAt: null,
    hibernatedAt: null,
    billedMs: null,
    runningSince: null,
    timeout: 300,
    endsAt: null,
    expiresAt: '2026-11-21T06:35:00.000Z',
    maxLifetime: null,
    autoHibernate: false,
    cwd: null,
    disk: null,
    labels: { a_b: 'c' },
    parentId: null,
    auditKeyId: null,
    statusReason: null,
    operation: null,
  });
});

test('get returns null on 404 and throws on every other error', async () => {
  await using missing = await LoopbackServer.answering(404, errorBody('not_found', 'no such sandbox'));
  assert.equal(await missing.client().sandboxes.get('run1'), null);
  await using refusing = await LoopbackServer.answering(401, errorBody('unauthorized', 'revoked'));
  await assert.rejects(refusing.client().sandboxes.get('run1'), CoppiceError);
});

test('an id cannot change the path of a request', async () => {
  await using server = await LoopbackServer.answering(404, '');
  const { sandboxes } = server.client();
  for (const id of ['', '.', '..']) await assert.rejects(sandboxes.get(id), /sandbox id/);
  assert.equal(server.seen.length, 0);
  assert.equal(await sandboxes.get('../images?x#y'), null);
  assert.equal(server.last.url, '/v1/runs/..%2Fimages%3Fx%23y');
});

test('Sandbox.create and Sandbox.get use a new client', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord());
  const call = { apiKey: TEST_KEY, baseUrl: server.url };
  const sandbox = await Sandbox.create({ image: 'a:1' }, { ...call, idempotencyKey: 'k1' });
  assert.equal(sandbox.id, SANDBOX_ID);
  assert.equal(server.last.headers['idempotency-key'], 'k1');
  assert.equal((await Sandbox.get(SANDBOX_ID, call))?.status, 'running');
});

test('setTimeout patches the timer and stores the new record', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord({ timeout: 0, expires_at: null }));
  const sandbox = server.sandbox();
  const info = await sandbox.setTimeout(0);
  assert.equal(server.last.method, 'PATCH');
  assert.deepEqual(server.lastJson, { timeout: 0 });
  assert.equal(info.expiresAt, null);
  assert.equal(sandbox.record.timeout, 0);
});

test('update sends every setting under its wire name, and null as null', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord({ name: 'ci', labels: { a_b: 'c' } }));
  const sandbox = server.sandbox();
  await sandbox.update({
    timeout: 5,
    name: 'ci',
    labels: { a_b: 'c' },
    autoHibernate: true,
    maxLifetime: 60,
  });
  assert.equal(`${server.last.method} ${server.last.url}`, `PATCH /v1/runs/${SANDBOX_ID}`);
  assert.deepEqual(server.lastJson, {
    timeout: 5,
    name: 'ci',
    labels: { a_b: 'c' },
    auto_hibernate: true,
    max_lifetime: 60,
  });
  assert.deepEqual([sandbox.name, sandbox.record.labels], ['ci', { a_b: 'c' }]);
  await sandbox.update({ name: null, maxLifetime: null, timeout: undefined });
  assert.deepEqual(server.lastJson, { name: null, max_lifetime: null });
  await sandbox.update({ expiresAt: '2026-11-21T06:30:00+01:00' });
  assert.deepEqual(server.lastJson, { expires_at: '2026-11-21T06:30:00+01:00' });
  await sandbox.update({ env: { A: 'b' }, cwd: null });
  assert.deepEqual(server.lastJson, { env: { A: 'b' }, cwd: null });
  await sandbox.update({ expiresAt: null });
  assert.deepEqual(server.lastJson, { expires_at: null });
  await assert.rejects(sandbox.update({ expiresAt: new Date('x') }), /update: expiresAt is an invalid date/);
  await assert.rejects(sandbox.update({ image: 'a:1' } as object), /update: unknown option "image"/);
});

test('hibernate and resume send no body and store the new record', async () => {
  const hibernatedAt = '2026-11-21T06:31:00.000Z';
  await using server = await LoopbackServer.start((request, response) => {
    const isHibernate = request.url.endsWith('/hibernate');
    const changes = isHibernate ? { status: 'hibernated', hibernated_at: hibernatedAt } : {};
    sendJson(response, { body: wireRecord({ ...changes, auto_hibernate: true }) });
  });
  const sandbox = server.sandbox();
  assert.equal((await sandbox.hibernate()).hibernatedAt, hibernatedAt);
  assert.deepEqual([sandbox.status, sandbox.record.autoHibernate], ['hibernated', true]);
  assert.equal((await sandbox.resume()).hibernatedAt, null);
  assert.equal(sandbox.status, 'running');
  assert.deepEqual(
    server.seen.map(({ method, url, body, headers }) => [method, url, body.length, headers['content-type']]),
    ['hibernate', 'resume'].map((change) => ['POST', `/v1/runs/${SANDBOX_ID}/${change}`, 0, undefined]),
  );
});

test('a refused change of state rejects with the service’s code and keeps the record', async () => {
  await using server = await LoopbackServer.answering(409, errorBody('invalid_state', 'it is running'));
  const sandbox = server.sandbox();
  await assert.rejects(sandbox.resume(), { code: 'invalid_state', detail: 'it is running' });
  assert.equal(sandbox.status, 'running');
});

test('a change of state that an earlier attempt made is not an error, every other refusal is', async () => {
  let status = 'hibernated';
  await using server = await LoopbackServer.start(({ method }, response) => {
    if (method === 'GET') return sendJson(response, { body: wireRecord({ status }) });
    const isFirst = server.seen.length % 3 === 1;
    const body = isFirst ? errorBody('unavailable', 'x') : errorBody('invalid_state', `it is ${status}`);
    return sendJson(response, { status: isFirst ? 503 : 409, headers: { 'retry-after': '0' }, body });
  });
  const sandbox = server.sandbox();
  assert.equal((await sandbox.hibernate()).status, 'hibernated');
  await assert.rejects(sandbox.resume(), { code: 'invalid_state' });
  status = 'running';
  assert.equal((await sandbox.resume()).status, 'running');
  assert.equal(server.seen.length, 9);
});

test('await using also destroys a hibernated sandbox', async () => {
  await using server = await LoopbackServer.start((request, response) => {
    const body = request.method === 'DELETE' ? DESTROYED : wireRecord({ status: 'hibernated' });
    sendJson(response, { body });
  });
  {
    await using sandbox = server.sandbox();
    await sandbox.hibernate();
  }
  assert.equal(server.last.method, 'DELETE');
});

test('info and refresh fetch the record', async () => {
  await using server = await LoopbackServer.answering(
    200,
    wireRecord({ status: 'failed', status_reason: 'x' }),
  );
  const sandbox = server.sandbox();
  assert.equal(sandbox.status, 'running');
  assert.equal((await sandbox.info()).statusReason, 'x');
  assert.equal(await sandbox.refresh(), sandbox);
  assert.equal(sandbox.status, 'failed');
});

test('destroy returns the used resources', async () => {
  await using server = await LoopbackServer.answering(200, DESTROYED);
  const sandbox = server.sandbox();
  assert.deepEqual(await sandbox.destroy(), {
    status: 'destroyed',
    cpuMs: 12,
    memPeakBytes: 3e8,
    uptimeMs: 4567,
    costCents: 0.00507,
  });
  assert.equal(server.last.method, 'DELETE');
  assert.equal(sandbox.status, 'destroyed');
});

test('destroying twice is an error, except at the end of an await using block', async () => {
  await using server = await startRefusing('destroyed');
  const refused = { code: 'invalid_state', status: 409 };
  await assert.rejects(server.sandbox().destroy(), refused);
  {
    await using sandbox = server.sandbox();
    assert.equal(sandbox.id, SANDBOX_ID);
  }
  assert.equal(server.last.method, 'GET');
});

test('await using destroys once', async () => {
  await using server = await LoopbackServer.answering(200, DESTROYED);
  {
    await using left = server.sandbox();
    assert.equal(left.id, SANDBOX_ID);
  }
  assert.equal(server.seen.length, 1);
  {
    await using ended = server.sandbox();
    await ended.destroy();
  }
  assert.equal(server.seen.length, 2);
});

test('await using reports a sandbox that could not be destroyed', async () => {
  await using server = await startRefusing('hibernating');
  const dispose = async (): Promise<void> => {
    await using sandbox = server.sandbox();
    assert.equal(sandbox.id, SANDBOX_ID);
  };
  await assert.rejects(dispose(), { code: 'invalid_state' });
});
