import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RegistryLogin } from './registries.ts';
import { errorBody, LoopbackServer } from './testing/loopback-server.ts';

const WIRE = { registry: '127.0.0.1:5000', username: 'robot', updated_at: '2026-11-21T06:30:00.000Z' };
const SHOWN = { registry: '127.0.0.1:5000', username: 'robot', updatedAt: '2026-11-21T06:30:00.000Z' };
const LOGIN = { username: 'robot', password: 'hunter2' };

test('credentials are stored under the encoded name of the registry', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  assert.deepEqual(await server.client().registries.set('127.0.0.1:5000', LOGIN), SHOWN);
  assert.equal(`${server.last.method} ${server.last.url}`, 'PUT /v1/registries/127.0.0.1%3A5000');
  assert.deepEqual(server.lastJson, LOGIN);
});

test('registries have fields in camelCase', async () => {
  await using server = await LoopbackServer.answering(200, [WIRE]);
  assert.deepEqual(await server.client().registries.list(), [SHOWN]);
  assert.equal(`${server.last.method} ${server.last.url}`, 'GET /v1/registries');
});

test('delete returns nothing, and an unknown registry is an error with the service’s code', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(204).end();
  });
  assert.equal(await server.client().registries.delete('ghcr.io'), undefined);
  assert.equal(`${server.last.method} ${server.last.url}`, 'DELETE /v1/registries/ghcr.io');
  await using empty = await LoopbackServer.answering(404, errorBody('not_found', 'there are none'));
  await assert.rejects(empty.client().registries.delete('ghcr.io'), { code: 'not_found' });
});

test('a misspelt field and an invalid name are refused before a request is sent', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  const misspelt = { username: 'robot', pasword: 'hunter2' } as unknown as RegistryLogin;
  await assert.rejects(server.client().registries.set('ghcr.io', misspelt), (error) => {
    return (
      error instanceof TypeError && /"pasword"/.test(error.message) && !error.message.includes('hunter2')
    );
  });
  await assert.rejects(server.client().registries.set('', LOGIN), TypeError);
  assert.equal(server.seen.length, 0);
});
