/** CORS: pages of other origins may use the API with a key, and nothing with a cookie. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as sendRequest, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import type { CreatedPreview, Ticket } from '@coppice/contract';
import { WebSocket } from 'ws';
import {
  API_KEY,
  startHarness,
  startHarnessWith,
  type CallOptions,
  type ControlHarness,
} from '../../testing/control-harness.ts';

const ORIGIN = 'https://app.example.test';
const PORT = 5173;
let harness: ControlHarness;
let id = '';
const asked: string[] = [];
let service: Server;

before(async () => {
  harness = await startHarness();
  harness.runner.files.contents.set('/a', Buffer.from('hello'));
  ({ id } = await harness.create());
  service = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    response.setHeader('access-control-allow-origin', 'https://evil.example.test');
    response.setHeader('access-control-allow-credentials', 'true');
    response.setHeader('access-control-max-age', '999999');
    response.setHeader('vary', 'Accept');
    response.setHeader('x-own', 'value');
    response.end('the guest');
  });
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  harness.runner.ports.set(PORT, (service.address() as AddressInfo).port);
});
after(async () => {
  service.closeAllConnections();
  service.close();
  await harness[Symbol.asyncDispose]();
});

interface Answer {
  status: number;
  headers: IncomingMessage['headers'];
}

interface Call {
  key?: boolean;
  headers?: Record<string, string>;
  harness?: ControlHarness;
}

/** Sends a request as a page of another origin. `fetch` would not send the headers that only a browser may set. */
async function ask(
  method: string,
  path: string,
  { key = true, headers = {}, ...call }: Call = {},
): Promise<Answer> {
  const { hostname, port } = new URL((call.harness ?? harness).address);
  const authorization = key ? { authorization: `Bearer ${API_KEY}` } : {};
  const all = { origin: ORIGIN, ...authorization, ...headers };
  const sent = sendRequest({ hostname, port, method, path, headers: all });
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  answer.resume();
  await once(answer, 'close');
  return { status: answer.statusCode ?? 0, headers: answer.headers };
}

const preflight = (
  path: string,
  headers: Record<string, string> = {},
  of?: ControlHarness,
): Promise<Answer> =>
  ask('OPTIONS', path, {
    key: false,
    headers: {
      'access-control-request-method': 'PATCH',
      'access-control-request-headers': 'authorization,content-type,x-mine',
      ...headers,
    },
    ...(of === undefined ? {} : { harness: of }),
  });

const corsOf = ({ headers }: Answer): Record<string, unknown> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')));

test('a preflight is answered without a key, on every path below /v1', async () => {
  for (const path of ['/v1/runs', `/v1/runs/${id}`, '/v1/nothing', '/v1/runs?limit=1']) {
    const answer = await preflight(path);
    assert.equal(answer.status, 204, path);
    assert.deepEqual(corsOf(answer), {
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      'access-control-allow-headers': 'authorization,content-type,x-mine',
      'access-control-expose-headers': EXPOSED,
      'access-control-max-age': '7200',
    });
  }
});

const EXPOSED =
  'accept-ranges, content-disposition, content-length, content-range, idempotency-replayed, link, location, mcp-session-id, ratelimit, ' +
  'ratelimit-policy, retry-after, www-authenticate, x-request-id';

test('pages may read every answer below /v1, errors and streams included, and no answer allows cookies', async () => {
  const calls: [method: string, path: string, status: number, call?: Call][] = [
    ['GET', '/v1/runs', 200],
    ['GET', `/v1/runs/${id}/files/download?path=/a`, 200],
    ['HEAD', `/v1/runs/${id}/files/download?path=/a`, 200],
    ['GET', `/v1/runs/${id}/audit`, 200],
    ['GET', '/v1/statements/2026-10?format=csv', 200],
    ['GET', '/v1/runs', 401, { key: false }],
    ['GET', '/v1/runs/absent', 404],
    ['GET', '/v1/nothing', 404],
    ['POST', '/v1/runs', 400, { headers: { 'content-type': 'application/json' } }],
  ];
  for (const [method, path, status, call] of calls) {
    const answer = await ask(method, path, call);
    assert.equal(answer.status, status, path);
    const expected = { 'access-control-allow-origin': '*', 'access-control-expose-headers': EXPOSED };
    assert.deepEqual(corsOf(answer), expected, path);
    assert.ok(answer.headers['x-request-id']);
  }
});

test('pages may read a streamed answer', async () => {
  const options: CallOptions = { body: { command: 'x' }, headers: { origin: ORIGIN } };
  for (const path of ['exec', 'exec/stream']) {
    const answer = await harness.fetch('POST', `/v1/runs/${id}/${path}`, options);
    assert.equal(answer.headers.get('access-control-allow-origin'), '*', path);
    await answer.text();
  }
});

test('paths outside /v1 stay closed', async () => {
  for (const path of [
    '/account/me',
    '/account/sign-in',
    '/healthz',
    '/openapi.json',
    '/',
    '/v10',
    '/%76%31/runs',
  ]) {
    assert.deepEqual(corsOf(await preflight(path)), {}, path);
    assert.deepEqual(corsOf(await ask('GET', path)), {}, path);
  }
  assert.equal((await preflight('/account/me')).status, 405);
});

test('below the port proxy the service answers preflights, and drops CORS headers of the guest', async () => {
  const path = `/v1/runs/${id}/proxy/${PORT}/x`;
  asked.length = 0;
  const allowed = await preflight(path);
  assert.equal(allowed.status, 204);
  assert.equal(allowed.headers['access-control-allow-methods'], '*');
  assert.deepEqual(asked, [], 'the guest saw a request without a key');

  for (const method of ['GET', 'OPTIONS']) {
    const answer = await ask(method, path, { headers: { 'access-control-request-method': 'PUT' } });
    assert.deepEqual(corsOf(answer), {
      'access-control-allow-origin': '*',
      'access-control-expose-headers': '*',
    });
    assert.equal(answer.headers['x-own'], 'value');
    assert.equal(answer.headers.vary, 'Accept, Origin');
  }
  assert.deepEqual(asked, ['GET /x', 'OPTIONS /x']);
  const refused = await ask('GET', path, { key: false });
  assert.deepEqual([refused.status, refused.headers['access-control-allow-origin']], [401, '*']);
});

test('under a preview origin the guest sets its own CORS headers', async () => {
  const { body } = await harness.call('POST', `/v1/runs/${id}/ports/${PORT}/preview`, { body: {} });
  const { host, pathname, search, origin } = new URL((body as CreatedPreview).url);
  const opened = await ask('GET', `${pathname}${search}`, { headers: { host } });
  const [cookie = ''] = opened.headers['set-cookie'] ?? [];
  const headers = { host, origin, cookie: cookie.split(';', 1)[0] ?? '' };
  const shown = await ask('GET', '/v1/x', { key: false, headers });
  assert.equal(shown.headers['access-control-allow-origin'], 'https://evil.example.test');
  const foreign = await preflight('/v1/x', { ...headers, origin: ORIGIN });
  assert.deepEqual([foreign.status, corsOf(foreign)], [403, {}]);
});

test('a ticket opens a WebSocket from any origin, and headers that a browser adds do not', async () => {
  const connect = async (query: string): Promise<number> => {
    const url = `${harness.address.replace('http', 'ws')}/v1/runs/${id}/shell${query}`;
    const socket = new WebSocket(url, { headers: { origin: ORIGIN, cookie: 'coppice_session=x' } });
    const outcome = Promise.withResolvers<number>();
    socket.on('open', () => outcome.resolve(101));
    socket.on('unexpected-response', (_request, { statusCode = 0 }) => outcome.resolve(statusCode));
    socket.on('error', () => undefined);
    const status = await outcome.promise;
    socket.terminate();
    return status;
  };
  assert.equal(await connect(''), 401);
  const { body } = await harness.call('POST', `/v1/runs/${id}/tickets`, { body: {} });
  assert.equal(await connect(`?ticket=${encodeURIComponent((body as Ticket).ticket)}`), 101);
});

test('with a list only pages of these origins may use the API, and with an empty list none', async () => {
  await using listed = await startHarnessWith({ corsOrigins: [ORIGIN, 'http://localhost:3000'] });
  const own = await ask('GET', '/v1/runs', { harness: listed });
  assert.equal(own.headers['access-control-allow-origin'], ORIGIN);
  assert.match(own.headers.vary ?? '', /Origin/u);
  for (const origin of ['https://other.example.test', 'null', `${ORIGIN}:444`, `${ORIGIN}.evil.test`]) {
    const allowed = await preflight('/v1/runs', { origin }, listed);
    assert.equal(allowed.headers['access-control-allow-origin'], undefined, origin);
    const answer = await ask('GET', '/v1/runs', { harness: listed, headers: { origin } });
    assert.equal(answer.headers['access-control-allow-origin'], undefined, origin);
  }
  await using closed = await startHarnessWith({ corsOrigins: [] });
  const refused = await preflight('/v1/runs', {}, closed);
  assert.deepEqual([refused.status, corsOf(refused)], [401, {}]);
});
