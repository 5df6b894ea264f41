import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LoopbackServer, sendJson, wireRecord } from './testing/loopback-server.ts';

const COUNTERS = {
  connections_open: 1,
  connections_allowed: 2,
  connections_blocked: 3,
  bytes_sent: 4,
  bytes_received: 5,
  names_resolved: 6,
  names_refused: 7,
  requests_proxied: 8,
};
const NETWORK = {
  network_profile: null,
  network: { allow: ['api.test'], deny: [] },
  counters: COUNTERS,
  warnings: ['w'],
};
const EGRESS = {
  network: { allow: ['api.test'] },
  credentials: { openai: 'k', my_service: 'l', google: { secret: 'of-all' } },
  credentialsV2: { github: { key: 'g', endpoints: [{ methods: ['GET'], paths: ['/repos/a/*'] }] } },
};

/** Starts a service with one sandbox. It answers all other requests with `body`. */
async function startWith(body: unknown): Promise<LoopbackServer> {
  return LoopbackServer.start((request, response) =>
    sendJson(response, request.method === 'POST' ? { status: 201, body: wireRecord() } : { body }),
  );
}

test('create and restore send the network options, with service names unchanged', async () => {
  await using server = await LoopbackServer.answering(201, wireRecord());
  const { sandboxes } = server.client();
  const wire = {
    network: EGRESS.network,
    credentials: EGRESS.credentials,
    credentials_v2: EGRESS.credentialsV2,
  };
  await sandboxes.create({ image: 'a:1', ...EGRESS });
  assert.deepEqual(server.lastJson, { image: 'a:1', ...wire });
  await sandboxes.restore('snap1', EGRESS);
  assert.deepEqual(server.lastJson, { snapshot_id: 'snap1', ...wire });
  await sandboxes.create({ image: 'a:1', networkProfile: 'locked-down' });
  assert.deepEqual(server.lastJson, { image: 'a:1', network_profile: 'locked-down' });
});

test('the network policy is read, and replaced by rules or by the name of a profile', async () => {
  await using server = await startWith(NETWORK);
  const sandbox = await server.client().sandboxes.create();
  const { network, counters, warnings } = await sandbox.network();
  assert.equal(`${server.last.method} ${server.last.url}`, `GET /v1/runs/${sandbox.id}/network`);
  assert.deepEqual([network, warnings], [NETWORK.network, ['w']]);
  assert.equal(counters?.requestsProxied, 8);
  await sandbox.setNetwork({ deny: ['10.0.0.0/8'] });
  assert.equal(`${server.last.method} ${server.last.url}`, `PUT /v1/runs/${sandbox.id}/network`);
  assert.deepEqual(server.lastJson, { network: { deny: ['10.0.0.0/8'] } });
  await sandbox.setNetwork('packages');
  assert.deepEqual(server.lastJson, { network_profile: 'packages' });
});

test('counters that are not available are null', async () => {
  await using server = await startWith({ ...NETWORK, counters: null });
  const sandbox = await server.client().sandboxes.create();
  assert.equal((await sandbox.network()).counters, null);
  const counters = { ...COUNTERS, connections_open: null, connections_allowed: null };
  await using open = await startWith({ ...NETWORK, counters });
  const other = (await (await open.client().sandboxes.create()).network()).counters;
  assert.deepEqual([other?.connectionsOpen, other?.connectionsAllowed, other?.bytesSent], [null, null, 4]);
});

test('credentials are replaced and are listed without secrets', async () => {
  const endpoints = [{ methods: ['GET'], paths: [] }];
  await using server = await startWith([
    { service: 'github', endpoints, secret: 'bot', updated_at: 't' },
    { service: 'openai', endpoints: null, updated_at: 'u' },
  ]);
  const sandbox = await server.client().sandboxes.create();
  const { credentials, credentialsV2 } = EGRESS;
  const listed = await sandbox.setCredentials({ credentials, credentialsV2 });
  assert.equal(`${server.last.method} ${server.last.url}`, `PUT /v1/runs/${sandbox.id}/credentials`);
  assert.deepEqual(server.lastJson, { credentials, credentials_v2: credentialsV2 });
  assert.deepEqual(listed, [
    { service: 'github', endpoints, secret: 'bot', updatedAt: 't' },
    { service: 'openai', endpoints: null, secret: null, updatedAt: 'u' },
  ]);
  assert.deepEqual(await sandbox.credentials(), listed);
});

test('network profiles are listed with resolved rules', async () => {
  const profile = { name: 'locked-down', allow: [], deny: ['0.0.0.0/0'] };
  await using server = await startWith([profile]);
  assert.deepEqual(await server.client().networkProfiles(), [{ ...profile, description: null }]);
});
