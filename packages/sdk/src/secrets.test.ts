import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorBody, LoopbackServer } from './testing/loopback-server.ts';

const WIRE = {
  name: 'openai',
  version: 2,
  sandboxes: 3,
  outdated_sandboxes: 1,
  created_at: '2026-11-21T06:30:00.000Z',
  updated_at: '2026-11-22T06:30:00.000Z',
};
const SHOWN = {
  name: 'openai',
  version: 2,
  sandboxes: 3,
  outdatedSandboxes: 1,
  createdAt: WIRE.created_at,
  updatedAt: WIRE.updated_at,
};

test('a secret is stored under its name, and the answer has no value', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  assert.deepEqual(await server.client().secrets.set('openai', 'sk-1'), SHOWN);
  assert.equal(`${server.last.method} ${server.last.url}`, 'PUT /v1/secrets/openai');
  assert.deepEqual(server.lastJson, { value: 'sk-1' });
});

test('secrets are listed and read with fields in camelCase', async () => {
  await using server = await LoopbackServer.answering(200, [WIRE]);
  assert.deepEqual(await server.client().secrets.list(), [SHOWN]);
  assert.equal(`${server.last.method} ${server.last.url}`, 'GET /v1/secrets');
  await using one = await LoopbackServer.answering(200, WIRE);
  assert.deepEqual(await one.client().secrets.get('openai'), SHOWN);
  assert.equal(`${one.last.method} ${one.last.url}`, 'GET /v1/secrets/openai');
});

test('delete returns nothing, and a secret in use is an error with the service’s code', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(204).end();
  });
  assert.equal(await server.client().secrets.delete('openai'), undefined);
  assert.equal(`${server.last.method} ${server.last.url}`, 'DELETE /v1/secrets/openai');
  await using used = await LoopbackServer.answering(409, errorBody('secret_in_use', 'it is named'));
  await assert.rejects(used.client().secrets.delete('openai'), { code: 'secret_in_use' });
});

test('a missing value and an empty name are refused before a request is sent', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  const { secrets } = server.client();
  await assert.rejects(secrets.set('openai', undefined as unknown as string), TypeError);
  await assert.rejects(secrets.set('', 'sk-1'), TypeError);
  assert.equal(server.seen.length, 0);
});
