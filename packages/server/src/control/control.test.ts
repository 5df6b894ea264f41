/** The control role through outages: of itself, of its database, of its runner, of a VM. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { sql } from 'kysely';
import { AppError, computeCostUnits, costCents } from '@coppice/contract';
import { startControl } from './control.ts';
import {
  API_KEY,
  prepareHarness,
  startHarness,
  waitFor,
  type ControlHarness,
} from './testing/control-harness.ts';
import { copySandbox, forceState } from './testing/sandbox-row.ts';
import { AccountClient } from './testing/requests/account-client.ts';
import { findFreePort } from './testing/free-port.ts';
import type { FakeCommand } from './testing/fakes/fake-runner.ts';

const image = 'node:22-slim';

async function readPostmaster(harness: ControlHarness): Promise<number> {
  return Number(
    (await readFile(join(harness.directory, 'data/postgres/postmaster.pid'), 'utf8')).split('\n')[0],
  );
}

test('the first start creates a key and an invitation, shows them once, and they work', async () => {
  await using harness = await prepareHarness();
  await harness.runner.start();
  const { bootstrapKey, bootstrapInvitation: _, ...config } = harness.config;
  assert.ok(bootstrapKey);
  harness.control = await startControl(config, harness.log);
  const { apiKey = '', invitation = '' } = harness.control.bootstrap;
  assert.match(apiKey, /^cop_live_us_/);
  assert.match(invitation, /^inv_/);
  assert.equal((await harness.call('GET', '/v1/runs', { apiKey })).status, 200);
  await harness.stopControl();
  harness.control = await startControl(config, harness.log);
  assert.deepEqual(harness.control.bootstrap, {});
  assert.equal((await harness.call('GET', '/v1/runs', { apiKey })).status, 200);
  const owner = await AccountClient.signUp(harness, { invitation });
  const { body } = await owner.call('GET', '/account/me');
  assert.deepEqual([body.organizations[0].name, body.organizations[0].role], ['default', 'owner']);
  for (const secret of [apiKey, invitation]) assert.ok(!harness.logLines.join('').includes(secret));
});

test('a start that already listens does not answer that the configured key is wrong', async () => {
  await using harness = await startHarness();
  await harness.stopControl();
  const port = await findFreePort();
  const ask = async (path: string): Promise<number> => {
    const headers = { authorization: `Bearer ${API_KEY}` };
    return (await fetch(`http://127.0.0.1:${port}${path}`, { headers }).catch(() => undefined))?.status ?? 0;
  };
  const listen = { ...harness.config.listen, port };
  await using database = harness.openDatabase();
  const [locked, unlock] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const holding = database.transaction().execute(async (transaction) => {
    await sql`LOCK TABLE organizations IN ACCESS EXCLUSIVE MODE`.execute(transaction);
    locked.resolve();
    await unlock.promise;
  });
  await locked.promise;
  const starting = startControl({ ...harness.config, listen }, harness.log);
  await waitFor('the listener', async () => (await ask('/healthz')) !== 0);
  for (const path of ['/healthz', '/v1/usage']) assert.equal(await ask(path), 503, path);
  unlock.resolve();
  await holding;
  harness.control = await starting;
  for (const path of ['/healthz', '/v1/usage']) assert.equal(await ask(path), 200, path);
});

test('a sandbox from create to destroy: usage and cost match its life', async () => {
  await using harness = await startHarness();
  const sandbox = await harness.create({ vcpus: 2, mem_mib: 2048 });
  assert.match(sandbox.image, /^registry\.test\/library\/node:22-slim@sha256:/);
  assert.match(sandbox.id, /^run[0-9a-f]{20}$/);
  const { body, status } = await harness.call('DELETE', `/v1/runs/${sandbox.id}`);
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(body).toSorted(), [
    'cost_cents',
    'cpu_ms',
    'mem_peak_bytes',
    'status',
    'uptime_ms',
  ]);
  assert.equal(body.cpu_ms, 1234);
  assert.equal(
    body.cost_cents,
    costCents(computeCostUnits({ vcpus: 2, memMiB: 2048, billedMs: body.uptime_ms })),
  );
  const record = (await harness.call('GET', `/v1/runs/${sandbox.id}`)).body;
  assert.equal(record.status, 'destroyed');
  assert.equal(record.status_reason, 'requested');
  assert.equal(Date.parse(record.ended_at) - Date.parse(record.created_at), body.uptime_ms);
  assert.equal((await harness.call('DELETE', `/v1/runs/${sandbox.id}`)).status, 409);
  await waitFor('the end to be acknowledged', () => harness.runner.ends.size === 0);
});

test('a second control on the same data directory is refused, and the first keeps serving', async () => {
  await using harness = await startHarness();
  await assert.rejects(startControl(harness.config, harness.log), /another control works in .*data/);
  assert.equal((await harness.call('GET', '/v1/runs')).status, 200);
});

test('two destroys at once: one destroys, the other gets 409', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  const answers = await Promise.all([1, 2].map(() => harness.call('DELETE', `/v1/runs/${id}`)));
  assert.deepEqual(
    answers.map((answer) => answer.status).toSorted((a, b) => a - b),
    [200, 409],
  );
});

test('a failed create leaves a failed record that costs nothing, and no VM', async () => {
  await using harness = await startHarness();
  harness.runner.onCreate = () => {
    throw new AppError('image_not_found', 'the registry has no such image');
  };
  const answer = await harness.call('POST', '/v1/runs', { body: { image } });
  assert.equal(answer.status, 404);
  assert.equal(answer.body.error.code, 'image_not_found');
  assert.deepEqual((await harness.call('GET', '/v1/runs')).body, []);
  const [record] = (await harness.call('GET', '/v1/runs?status=failed')).body;
  assert.equal(record.status_reason, 'create_failed');
  assert.equal(harness.runner.vms.size, 0);
});

test('a sandbox that is destroyed while it is created ends destroyed, and its VM is removed', async () => {
  await using harness = await startHarness();
  const gate = Promise.withResolvers<void>();
  harness.runner.onCreate = () => gate.promise;
  const create = harness.call('POST', '/v1/runs', { body: { image } });
  let id = '';
  await waitFor('the record', async () => {
    id = (await harness.call('GET', '/v1/runs')).body[0]?.id ?? '';
    return id !== '';
  });
  assert.equal((await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } })).status, 409);
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  gate.resolve();
  assert.equal((await create).status, 409);
  await waitFor('the VM to be removed', () => harness.runner.vms.size === 0);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'destroyed');
});

test('a client that leaves in the middle of a create does not stop it', async () => {
  await using harness = await startHarness();
  const gate = Promise.withResolvers<void>();
  harness.runner.onCreate = () => gate.promise;
  const abort = new AbortController();
  const create = harness.fetch('POST', '/v1/runs', { body: { image }, signal: abort.signal });
  await waitFor('the create', () =>
    harness.runner.requests.some((request) => request.startsWith('PUT /vms')),
  );
  abort.abort();
  await assert.rejects(create);
  gate.resolve();
  await waitFor(
    'it to run',
    async () => (await harness.call('GET', '/v1/runs')).body[0]?.status === 'running',
  );
});

test('the caller does not notice a restart of the runner in the middle of a create', async () => {
  await using harness = await startHarness();
  harness.runner.onCreate = async () => {
    harness.runner.onCreate = () => undefined;
    await harness.runner.stop();
    await harness.runner.start();
  };
  const sandbox = await harness.create();
  assert.equal(sandbox.status, 'running');
});

test('while the runner is down, calls get 503 with Retry-After, and records stay correct', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await harness.runner.stop();
  for (const [method, path, body] of [
    ['POST', '/v1/runs', { image }],
    ['POST', `/v1/runs/${id}/exec`, { command: 'x' }],
    ['DELETE', `/v1/runs/${id}`, undefined],
    ['GET', '/healthz', undefined],
  ] as const) {
    const answer = await harness.call(method, path, { body });
    assert.equal(answer.status, 503, `${method} ${path}`);
    assert.equal(answer.headers.get('retry-after'), '2');
  }
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'running');
  await harness.runner.start();
  await waitFor('health', async () => (await harness.call('GET', '/healthz')).status === 200);
  assert.equal((await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } })).status, 200);
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
});

test('/healthz shows the accelerator of new sandboxes, even if it changes while the runner runs', async () => {
  await using harness = await startHarness();
  const readHealth = async () => (await harness.call('GET', '/healthz')).body;
  const { version, ...health } = await readHealth();
  assert.deepEqual(health, { status: 'ok', accelerator: 'tcg' });
  assert.match(version, /^\d+\.\d+\.\d+/u);
  harness.runner.accelerator = 'kvm';
  await waitFor('the change', async () => (await readHealth()).accelerator === 'kvm');
});

test('a guest that powers off is destroyed, one that panics is failed, both at the time that the runner reports', async () => {
  await using harness = await startHarness();
  for (const [reason, status] of [
    ['guest_shutdown', 'destroyed'],
    ['guest_panic', 'failed'],
  ] as const) {
    const { id, created_at } = await harness.create();
    const endedAt = new Date(Date.parse(created_at) + 1);
    harness.runner.endVm(id, reason, endedAt);
    const record = await harness.waitForRecord(id, (found) => found.status !== 'running');
    assert.equal(record.status, status);
    assert.equal(record.status_reason, reason);
    assert.equal(record.ended_at, endedAt.toISOString());
  }
  await waitFor('the ends to be acknowledged', () => harness.runner.ends.size === 0);
});

test('ends of sandboxes while control was down are known after its start', async () => {
  await using harness = await startHarness();
  const ids = [];
  for (let count = 0; count < 3; count += 1) ids.push((await harness.create()).id);
  const [alive = '', ended = '', lost = ''] = ids;
  await harness.stopControl();
  harness.runner.endVm(ended, 'guest_shutdown');
  harness.runner.vms.delete(lost);
  const orphan = `run${'f'.repeat(20)}`;
  const vm = harness.runner.vms.get(alive);
  assert.ok(vm);
  harness.runner.vms.set(orphan, { ...vm, id: orphan });
  await harness.startControl();
  await harness.waitForRecord(ended, (found) => found.status_reason === 'guest_shutdown');
  await harness.waitForRecord(
    lost,
    (found) => found.status === 'failed' && found.status_reason === 'vm_lost',
  );
  await waitFor('the orphan to be removed', () => !harness.runner.vms.has(orphan));
  assert.equal(
    (await harness.call('POST', `/v1/runs/${alive}/exec`, { body: { command: 'x' } })).status,
    200,
  );
});

test('a VM of a sandbox that another process has created stays', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  const vm = harness.runner.vms.get(id);
  assert.ok(vm);
  const theirs = `run${'e'.repeat(20)}`;
  const orphan = `run${'f'.repeat(20)}`;
  await using db = harness.openDatabase();
  await copySandbox(db, id, { id: theirs });
  for (const planted of [theirs, orphan]) harness.runner.vms.set(planted, { ...vm, id: planted });
  await waitFor('the orphan to be removed', () => !harness.runner.vms.has(orphan));
  assert.ok(harness.runner.vms.has(theirs));
});

test('a create whose control died ends as failed, costs nothing and leaves no VM', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await harness.control?.[Symbol.asyncDispose]();
  await harness.startControl();
  {
    await using db = harness.openDatabase();
    await db
      .updateTable('sandboxes')
      .set(forceState({ status: 'creating' }))
      .where('id', '=', id)
      .execute();
  }
  await harness.stopControl();
  await harness.startControl();
  const record = await harness.waitForRecord(id, (found) => found.status === 'failed');
  assert.equal(record.status_reason, 'control_restarted');
  assert.equal(harness.runner.vms.size, 0);
});

test('an idle sandbox is destroyed within a second of its time, one in use is not', async () => {
  await using harness = await startHarness();
  const idle = await harness.create({ timeout: 1 });
  const used = await harness.create({ timeout: 1 });
  const never = await harness.create({ timeout: 0 });
  assert.equal(never.expires_at, null);
  let command: FakeCommand | undefined;
  harness.runner.onExec = (started) => (command = started);
  const exec = harness.fetch('POST', `/v1/runs/${used.id}/exec`, { body: { command: 'x' } });
  const record = await harness.waitForRecord(idle.id, (found) => found.status === 'destroyed');
  assert.equal(record.status_reason, 'idle_timeout');
  const late = Date.parse(record.ended_at ?? '') - Date.parse(idle.expires_at ?? '');
  assert.ok(Math.abs(late) <= 1000, `${late} ms late`);
  assert.equal((await harness.call('GET', `/v1/runs/${used.id}`)).body.status, 'running');
  command?.exit(0);
  await (await exec).text();
  await harness.waitForRecord(used.id, (found) => found.status_reason === 'idle_timeout');
  assert.equal((await harness.call('GET', `/v1/runs/${never.id}`)).body.status, 'running');
});

test('PATCH sets or restarts the idle timer, and a body is not needed', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create({ timeout: 100 });
  const path = `/v1/runs/${id}`;
  const set = await harness.call('PATCH', path, { body: { timeout: 1000 } });
  assert.equal(set.body.timeout, 1000);
  assert.ok(Date.parse(set.body.expires_at) > Date.now() + 900_000);
  const restarted = await harness.call('PATCH', path);
  assert.equal(restarted.status, 200);
  assert.ok(Date.parse(restarted.body.expires_at) >= Date.parse(set.body.expires_at));
  assert.equal((await harness.call('PATCH', path, { body: { timeout: 0 } })).body.expires_at, null);
  await harness.call('DELETE', path);
  assert.equal((await harness.call('PATCH', path)).status, 409);
});

test('max_lifetime ends a sandbox even while requests are open', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create({ max_lifetime: 1, timeout: 0 });
  harness.runner.onExec = () => undefined;
  const exec = await harness.fetch('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  const record = await harness.waitForRecord(id, (found) => found.status === 'destroyed');
  assert.equal(record.status_reason, 'max_lifetime');
  await exec.body?.cancel();
});

test('after a restart an idle sandbox has a minute of grace', async () => {
  await using harness = await startHarness();
  const { id, expires_at } = await harness.create({ timeout: 1 });
  await harness.stopControl();
  await waitFor('the timeout to pass', () => Date.now() > Date.parse(expires_at ?? ''));
  await harness.startControl();
  const { body } = await harness.call('GET', `/v1/runs/${id}`);
  assert.equal(body.status, 'running');
  assert.ok(Math.abs(Date.parse(body.expires_at) - Date.now() - 60_000) < 5_000);
});

test('a shutdown refuses new requests, lets open ones end, and leaves sandboxes alone', async () => {
  await using harness = await startHarness({}, 'own');
  const { id } = await harness.create();
  let command: FakeCommand | undefined;
  harness.runner.onExec = (started) => (command = started);
  const open = await harness.fetch('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  const stopped = harness.control?.[Symbol.asyncDispose]();
  await waitFor('the refusal', async () => (await harness.call('GET', '/v1/runs')).status === 503);
  const refused = await harness.call('GET', '/v1/runs');
  assert.equal(refused.headers.get('retry-after'), '2');
  assert.equal(refused.body.error.code, 'unavailable');
  command?.stdout('done');
  command?.exit(0);
  assert.equal(((await open.json()) as { stdout: string }).stdout, 'done');
  await stopped;
  assert.ok(harness.runner.vms.has(id));
  await assert.rejects(readPostmaster(harness), /ENOENT/);
  harness.control = undefined;
});

test('a killed PostgreSQL is started again, and no record is lost', async () => {
  await using harness = await startHarness({}, 'own');
  const { id } = await harness.create();
  const pid = await readPostmaster(harness);
  process.kill(pid, 'SIGKILL');
  await waitFor(
    'another postmaster',
    async () => (await readPostmaster(harness).catch(() => pid)) !== pid,
    30_000,
  );
  await waitFor('health', async () => (await harness.call('GET', '/healthz')).status === 200, 30_000);
  assert.equal((await harness.call('GET', '/v1/runs')).body[0].id, id);
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
});

test('a start that cannot listen creates no key, since nothing would show it', async () => {
  await using harness = await prepareHarness();
  await harness.runner.start();
  const { bootstrapKey: _key, bootstrapInvitation: _invitation, ...config } = harness.config;
  await using taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  await assert.rejects(startControl({ ...config, listen: { host: '127.0.0.1', port } }, harness.log), {
    code: 'EADDRINUSE',
  });
  harness.control = await startControl(config, harness.log);
  assert.match(harness.control.bootstrap.apiKey ?? '', /^cop_live_us_/);
});
