import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorBody, LoopbackServer } from './testing/loopback-server.ts';

const WIRE = {
  image: 'a:1@sha256:0',
  digest: 'sha256:0',
  size_bytes: 5,
  prepared_at: null,
  status: 'preparing',
};
const SHOWN = {
  image: 'a:1@sha256:0',
  digest: 'sha256:0',
  sizeBytes: 5,
  preparedAt: null,
  status: 'preparing',
};

test('images are listed in camelCase', async () => {
  await using server = await LoopbackServer.answering(200, [WIRE]);
  assert.deepEqual(await server.client().images.list(), [SHOWN]);
  assert.equal(server.last.url, '/v1/images');
});

test('build names the image and answers its record', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  assert.deepEqual(await server.client().images.build('a:1'), SHOWN);
  assert.equal(`${server.last.method} ${server.last.url}`, 'POST /v1/images/build');
  assert.deepEqual(server.lastJson, { image: 'a:1' });
});

test('a refused image is an error with the service’s code', async () => {
  await using server = await LoopbackServer.answering(400, errorBody('image_not_pinned', 'a has no tag'));
  await assert.rejects(server.client().images.build('a'), {
    code: 'image_not_pinned',
    detail: 'a has no tag',
  });
});
