/**
 * The access of each kind of key to every route of the API. The routes come from its description. A route that changes
 * something must refuse a key with the scope `read`, whatever the route declares.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { DiskRecord, KeyScope } from '@coppice/contract';
import Fastify from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { AccountClient } from '../../testing/requests/account-client.ts';
import { INVITATION, startHarness, type Answer, type ControlHarness } from '../../testing/control-harness.ts';
import {
  describeOperation,
  fillPath,
  isReading,
  listOperations,
  type Operation,
} from '../../testing/requests/described-operations.ts';
import { SocketClient } from '../../testing/requests/socket-client.ts';
import type { App } from '../app.ts';
import { checkKeyAccess, requireKeyAccess } from './key-access.ts';
import { PROXIED_METHODS } from './proxied-route.ts';

/** GET and HEAD operations that run something in the guest, or reach a process there. */
const OPENS_GUEST: ReadonlySet<string> = new Set([
  'execWebSocket',
  'shellWebSocket',
  'terminalWebSocket',
  'sshWebSocket',
  'getSsh',
  'proxyGet',
  'proxyHead',
]);
/** Operations that change something all teams use, or show something of all. */
const OF_ORGANIZATION: ReadonlySet<string> = new Set([
  'putRegistry',
  'deleteRegistry',
  'createWebhook',
  'listWebhooks',
  'getWebhook',
  'patchWebhook',
  'deleteWebhook',
  'rotateWebhook',
  'testWebhook',
  'listDeliveries',
  'retryDelivery',
  'putSecret',
  'deleteSecret',
  'putBudget',
  'deleteBudget',
  'getOrganizationAudit',
]);
/** Operations that read what only an owner, or a key that could do the same, may see. */
const OF_OWNERS: ReadonlySet<string> = new Set(['getOrganizationAudit']);
/** Operations that would remove what the others need. */
const ENDS: ReadonlySet<string> = new Set([
  'destroySandbox',
  'deleteSnapshot',
  'deleteDisk',
  'deleteDiskSnapshot',
]);

let harness: ControlHarness;
let owner: AccountClient;
let operations: Operation[] = [];
const keys = { full: '', read: '', teamOnly: '', sessionOfMember: '' };
const ids: Record<string, string> = {
  port: '80',
  registry: 'registry.one.test',
  scope: 'organization',
  previewId: 'prev0',
  delivery: 'msg0',
  disk: 'data',
  name: 'of-all-teams',
  diskSnapshot: 'clean',
};

before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  keys.full = await makeKey({});
  keys.read = await makeKey({ scope: 'read' });
  keys.teamOnly = await makeKey({ team_only: true });
  const member = await owner.invite('member');
  await owner.call('PUT', `${owner.team}/members/${member.id}`);
  keys.sessionOfMember = (await member.call('POST', `${member.team}/session-key`)).body.key;
  const { body: run } = await call('POST', '/v1/runs', keys.full, { image: 'node:22-slim' });
  const { body: snapshot } = await call('POST', `/v1/runs/${run.id}/snapshot`, keys.full, {});
  await call('PUT', `/v1/secrets/${ids['name']}`, keys.full, { value: 'v' });
  await call('POST', '/v1/disks', keys.full, { name: ids['disk'], size_gb: 1 });
  await call('POST', `/v1/disks/${ids['disk']}/snapshots`, keys.full, { name: ids['diskSnapshot'] });
  const webhook = await call('POST', '/v1/webhooks', keys.full, { url: 'https://one.test/' });
  const steps = { from: 'node:22-slim', name: 'app:1', steps: [] };
  const build = await call('POST', '/v1/images/build', keys.full, steps);
  ids['build'] = build.body.id;
  const tar = { apiKey: keys.full, raw: new Uint8Array(1024) };
  ids['context'] = (await harness.call('POST', '/v1/images/contexts', tar)).body.id;
  ids['webhook'] = webhook.body.id;
  const command = await call('POST', `/v1/runs/${run.id}/commands`, keys.full, { command: 'sleep 1' });
  ids['command'] = command.body.id;
  // Else each request that waits for it would take a minute.
  const [guest] = harness.runner.commands.list(run.id);
  assert.ok(guest);
  harness.runner.commands.end(run.id, guest, 0);
  const upload = `/v1/runs/${run.id}/files/upload?path=/etc/hostname`;
  await harness.fetch('POST', upload, { apiKey: keys.full, raw: 'one' });
  harness.runner.files.archives.contents.set('/etc/hostname', Buffer.from('packed'));
  Object.assign(ids, { run: run.id, snapshot: snapshot.id, month: new Date().toISOString().slice(0, 7) });
  operations = (await listOperations(harness)).filter(({ path }) => path.startsWith('/v1/'));
});
after(() => harness[Symbol.asyncDispose]());

async function makeKey(limits: object): Promise<string> {
  const { status, body } = await owner.call('POST', `${owner.team}/keys`, { name: 'a key', ...limits });
  assert.equal(status, 201, JSON.stringify(body));
  return body.key as string;
}

const call = (method: string, path: string, apiKey: string, body?: unknown): Promise<Answer> =>
  harness.call(method, path, { apiKey, ...(body === undefined ? {} : { body }) });

async function ask(operation: Operation, apiKey: string) {
  const options = isReading(operation) ? { apiKey } : { apiKey, body: {} };
  const response = await harness.fetch(operation.method, fillPath(operation, ids), options);
  return { status: response.status, text: await response.text() };
}

const isForbidden = ({ status, text }: { status: number; text: string }): boolean =>
  // The answer to a HEAD has no body.
  status === 403 && (text === '' || JSON.parse(text).error.code === 'forbidden');

/** Reads everything that a request could have changed. */
async function readEverything(): Promise<unknown> {
  const read = async (path: string) => (await call('GET', path, keys.full)).body;
  const { expires_at: _, ...record } = await read(`/v1/runs/${ids['run']}`);
  const audit = await (
    await harness.fetch('GET', `/v1/runs/${ids['run']}/audit`, { apiKey: keys.full })
  ).text();
  const lists = ['/v1/runs', '/v1/runs/history', '/v1/snapshots', '/v1/registries', '/v1/images'];
  return {
    record,
    lists: await Promise.all(
      lists.map(async (path) => ((await read(path)) as { id?: string }[]).map(({ id }) => id)),
    ),
    secrets: await read('/v1/secrets'),
    previews: await read(`/v1/runs/${ids['run']}/previews`),
    // Not what the runner measures meanwhile.
    disks: (await read('/v1/disks')).map(({ name, status, size_gb }: DiskRecord) => ({
      name,
      status,
      size_gb,
    })),
    diskSnapshots: await read(`/v1/disks/${ids['disk']}/snapshots`),
    entries: audit.split('\n').filter((line) => line !== '' && !line.includes('"file.download"')),
  };
}

test('every route that changes or runs something refuses a read-only key, and no other route does', async () => {
  const before = await readEverything();
  assert.ok(operations.length >= 40);
  for (const operation of operations) {
    const answer = await ask(operation, keys.read);
    const mayAsk = isReading(operation) && !OPENS_GUEST.has(operation.id) && !OF_OWNERS.has(operation.id);
    assert.equal(isForbidden(answer), !mayAsk, `${describeOperation(operation)}: ${answer.text}`);
    if (mayAsk) assert.equal(answer.status, 200, `${describeOperation(operation)}: ${answer.text}`);
  }
  assert.deepEqual(await readEverything(), before);
});

test('a read-only key reaches no port, by any method', async () => {
  for (const method of PROXIED_METHODS.filter((one) => !['GET', 'TRACE', 'CONNECT'].includes(one))) {
    const response = await harness.fetch(method, `/v1/runs/${ids['run']}/proxy/80/`, { apiKey: keys.read });
    assert.equal(response.status, 403, method);
    await response.body?.cancel();
  }
  for (const path of ['shell', 'terminal', 'ssh/ws', 'exec/ws', 'proxy/80/'])
    await assert.rejects(
      new SocketClient(harness, `/v1/runs/${ids['run']}/${path}`, { key: keys.read }).closed,
      /403/u,
    );
});

test('a read-only key may read the size of a file', async () => {
  const path = `/v1/runs/${ids['run']}/files/download?path=/etc/hostname`;
  assert.equal((await harness.fetch('HEAD', path, { apiKey: keys.read })).status, 200);
});

test('no refusal tells a read-only key whether a sandbox exists', async () => {
  const known = await call('POST', `/v1/runs/${ids['run']}/exec`, keys.read, { command: 'true' });
  const unknown = await call('POST', `/v1/runs/run${'0'.repeat(20)}/exec`, keys.read, { command: 'true' });
  assert.deepEqual([known.status, known.body.error.message], [unknown.status, unknown.body.error.message]);
  assert.match(known.body.error.message, /scope "read"/u);
});

test("a team-only key, and that of a member's session, may not change what all teams use, and may do everything else", async () => {
  for (const key of [keys.teamOnly, keys.sessionOfMember])
    for (const operation of operations) {
      if (ENDS.has(operation.id)) continue;
      const answer = await ask(operation, key);
      const isRefused = OF_ORGANIZATION.has(operation.id);
      assert.equal(isForbidden(answer), isRefused, `${describeOperation(operation)}: ${answer.text}`);
    }
});

test('a read-only key does not wake a hibernated sandbox', async () => {
  const body = { image: 'node:22-slim', auto_hibernate: true };
  const { id } = (await call('POST', '/v1/runs', keys.full, body)).body;
  await call('POST', `/v1/runs/${id}/hibernate`, keys.full);
  const status = async () => (await call('GET', `/v1/runs/${id}`, keys.read)).body.status;
  for (const path of ['files?path=/', 'files/download?path=/etc/hostname']) {
    const answer = await call('GET', `/v1/runs/${id}/${path}`, keys.read);
    assert.deepEqual([answer.status, answer.body.error.code], [409, 'invalid_state'], path);
    assert.match(answer.body.error.message, /a key whose scope is "full" wakes it/u);
    assert.equal(await status(), 'hibernated');
  }
  assert.equal((await call('GET', `/v1/runs/${id}/files?path=/`, keys.full)).status, 200);
  assert.equal(await status(), 'running');
});

test('a ticket allows no more than its key', async () => {
  const path = `/v1/runs/${ids['run']}`;
  const ask = async () => (await call('POST', `${path}/tickets`, keys.teamOnly, {})).body.ticket as string;
  const open = (ticket: string) =>
    new SocketClient(harness, `${path}/shell?ticket=${ticket}`, { key: null }).closed;
  const tickets = [await ask(), await ask()];
  await using db = harness.openDatabase();
  const limit = (change: { scope?: KeyScope; team_id?: string }) =>
    db.updateTable('api_keys').set(change).where('last4', '=', keys.teamOnly.slice(-4)).execute();
  await limit({ scope: 'read' });
  await assert.rejects(open(tickets[0] ?? ''), /403/u);
  const { body: team } = await owner.call('POST', `${owner.organization}/teams`, { name: 'others' });
  await limit({ scope: 'full', team_id: team.id });
  await assert.rejects(open(tickets[1] ?? ''), /404/u);
  await limit({ team_id: owner.teamId });
});

test('a route that does not declare its access keeps the service from starting, and its requests are refused', async () => {
  const build = (): App => Fastify().withTypeProvider<ZodTypeProvider>();
  const silent = build();
  await assert.rejects(async () => {
    await silent.register(async (v1: App) => {
      requireKeyAccess(v1);
      v1.get('/v1/new', async () => 'served');
    });
    await silent.ready();
  }, /GET \/v1\/new does not declare the access that it needs/u);
  const unchecked = build();
  unchecked.decorateRequest('keyScope', 'read');
  unchecked.addHook('onRequest', async (request) => checkKeyAccess(request));
  unchecked.get('/v1/new', async () => 'served');
  assert.equal((await unchecked.inject('/v1/new')).statusCode, 403);
});
