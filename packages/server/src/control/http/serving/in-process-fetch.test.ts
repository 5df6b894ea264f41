import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { test } from 'node:test';
import { InProcessApi } from './in-process-fetch.ts';

const ORIGIN = { clientAddress: '192.0.2.7', requestId: 'req-of-the-client' };
const URL_OF_HOST = 'https://api.example.test/v1/x?y=1';

type Listener = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

const fetchFrom = (listener: Listener) =>
  new InProcessApi((request, response) => void listener(request, response)).buildFetch(ORIGIN);

test('a call arrives with its method, path, host, body and the address of the client', async () => {
  const fetch = fetchFrom(async (request, response) => {
    const { method, url, headers, socket } = request;
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const seen = [method, url, headers.host, headers['x-request-id'], socket.remoteAddress, body];
    response.writeHead(201, { 'x-one': ['a', 'b'] }).end(JSON.stringify(seen));
  });
  const answer = await fetch(URL_OF_HOST, { method: 'POST', body: 'käfer', headers: { accept: '*/*' } });
  assert.deepEqual([answer.status, answer.headers.get('x-one')], [201, 'a, b']);
  const expected = ['POST', '/v1/x?y=1', 'api.example.test', ORIGIN.requestId, '192.0.2.7', 'käfer'];
  assert.deepEqual(await answer.json(), expected);
});

test('an answer without a body has none', async () => {
  const fetch = fetchFrom((_request, response) => void response.writeHead(204).end());
  const answer = await fetch(URL_OF_HOST, { method: 'DELETE' });
  assert.deepEqual([answer.status, answer.body], [204, null]);
});

test('a reader that does not read makes the API wait', async () => {
  let written = 0;
  const filled = Promise.withResolvers<void>();
  const fetch = fetchFrom((_request, response) => {
    const chunk = Buffer.alloc(64 << 10);
    while (response.write(chunk)) written += chunk.length;
    filled.resolve();
  });
  const answer = await fetch(URL_OF_HOST, { method: 'GET' });
  await filled.promise;
  assert.ok(written < 1 << 20, String(written));
  await answer.body?.cancel();
});

test('a caller that leaves ends the request, before the answer and during it', async () => {
  const arrivals: ServerResponse[] = [];
  const fetch = fetchFrom((_request, response) => {
    arrivals.push(response);
    if (arrivals.length > 1) response.write('begin');
  });
  const controller = new AbortController();
  const waiting = assert.rejects(fetch(URL_OF_HOST, { method: 'GET', signal: controller.signal }));
  while (arrivals.length === 0) await new Promise(setImmediate);
  const left = once(arrivals[0]!, 'close');
  controller.abort();
  await Promise.all([waiting, left]);

  const answer = await fetch(URL_OF_HOST, { method: 'GET' });
  const cancelled = once(arrivals[1]!, 'close');
  await answer.body?.cancel();
  await cancelled;
});

test('an answer that breaks off is an error to its reader', async () => {
  const fetch = fetchFrom((_request, response) => void response.write('begin', () => response.destroy()));
  const answer = await fetch(URL_OF_HOST, { method: 'GET' });
  await assert.rejects(answer.text());
});
