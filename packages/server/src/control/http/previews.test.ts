/** Preview links and the origins that they open. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as sendRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import type { CreatedPreview, PreviewRecord } from '@coppice/contract';
import { WebSocket, WebSocketServer } from 'ws';
import { insertTeam } from '../accounts/organizations/organization-store.ts';
import { API_KEY, startHarness, type ControlHarness } from '../testing/control-harness.ts';

const PORT = 5173;
let harness: ControlHarness;
let id = '';
let seen: IncomingMessage[] = [];
const service = createServer((request, response) => {
  seen.push(request);
  response.setHeader('set-cookie', ['theirs=1; Domain=localhost', 'coppice_preview=forged']);
  response.end(`${request.method} ${request.url}`);
});
const webSockets = new WebSocketServer({ server: service });
webSockets.on('connection', (socket) => socket.send('welcome'));

before(async () => {
  harness = await startHarness();
  ({ id } = await harness.create());
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  harness.runner.ports.set(PORT, (service.address() as AddressInfo).port);
});
after(async () => {
  webSockets.close();
  service.closeAllConnections();
  service.close();
  await harness[Symbol.asyncDispose]();
});

async function createPreview(body: Record<string, unknown> = {}, port: number | string = PORT) {
  return harness.call('POST', `/v1/runs/${id}/ports/${port}/preview`, { body });
}

interface Visit {
  host?: string;
  cookie?: string;
  headers?: Record<string, string>;
  method?: string;
}

/** Requests a page as a browser does: names below localhost are this machine. */
async function visit(path: string, { host, cookie, headers = {}, method = 'GET' }: Visit = {}) {
  const { hostname, port } = new URL(harness.control?.address ?? '');
  const own = {
    host: host ?? `${PORT}-${id}.localhost:${port}`,
    ...(cookie === undefined ? {} : { cookie }),
  };
  const sent = sendRequest({ hostname, port, path, method, headers: { ...own, ...headers } });
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of answer) text += String(chunk);
  return { status: answer.statusCode, headers: answer.headers, text };
}

async function openLink(): Promise<{ cookie: string; preview: CreatedPreview }> {
  const preview = (await createPreview()).body as CreatedPreview;
  const { host, pathname, search } = new URL(preview.url);
  const { status, headers } = await visit(`${pathname}${search}`, { host });
  assert.equal(status, 303);
  assert.equal(headers.location, '/');
  const [cookie = ''] = headers['set-cookie'] ?? [];
  assert.match(cookie, /; HttpOnly; SameSite=Lax; Max-Age=3\d{3}$/u);
  return { cookie: cookie.split(';')[0] ?? '', preview };
}

test('a link has an origin of its own, and is valid for an hour by default', async () => {
  const { status, body } = await createPreview();
  assert.equal(status, 201);
  const { url, created_at, expires_at, port } = body as CreatedPreview;
  const address = new URL(harness.control?.address ?? '');
  assert.equal(new URL(url).host, `${PORT}-${id}.localhost:${address.port}`);
  assert.equal(port, PORT);
  assert.equal(Date.parse(expires_at) - Date.parse(created_at), 3_600_000);
});

test('a visitor who opened the link sees the port; the guest gets the path unchanged, without the preview cookie', async () => {
  const { cookie } = await openLink();
  seen = [];
  const { status, text, headers } = await visit('/v1/runs/../x?y=%2F', { cookie: `a=1; ${cookie}; b=2` });
  assert.deepEqual([status, text], [200, 'GET /v1/runs/../x?y=%2F']);
  assert.equal((await visit('//', { cookie })).text, 'GET //');
  assert.equal(seen[0]?.headers.cookie, 'a=1; b=2');
  assert.equal(seen[0]?.headers.host, `localhost:${PORT}`);
  assert.match(String(seen[0]?.headers['x-forwarded-host']), /^5173-run.*\.localhost:\d+$/u);
  assert.deepEqual(headers['set-cookie'], ['theirs=1']);
});

test('the guest receives an Authorization header of the page, but no API key', async () => {
  const { cookie } = await openLink();
  seen = [];
  await visit('/', { cookie, headers: { authorization: 'Basic dTpw' } });
  await visit('/', { cookie, headers: { authorization: `Bearer ${API_KEY}` } });
  assert.deepEqual(
    seen.map((request) => request.headers.authorization),
    ['Basic dTpw', undefined],
  );
});

test('without the cookie, with that of another port, or with only an API key, nothing is shown', async () => {
  const { cookie } = await openLink();
  seen = [];
  const { port } = new URL(harness.control?.address ?? '');
  for (const wrong of [
    {},
    { cookie: 'coppice_preview=x.y' },
    { cookie, host: `5174-${id}.localhost:${port}` },
    { cookie, host: `${PORT}-run${'0'.repeat(20)}.localhost:${port}` },
    { headers: { authorization: `Bearer ${API_KEY}` } },
  ])
    assert.equal((await visit('/', wrong)).status, 401);
  assert.equal(seen.length, 0);
});

test('a link allows no more than its key', async () => {
  const { cookie } = await openLink();
  await using db = harness.openDatabase();
  const ofKey = async (change: { scope?: 'full' | 'read'; team_id?: string; team_only?: boolean }) => {
    await db.updateTable('api_keys').set(change).where('last4', '=', API_KEY.slice(-4)).execute();
    return (await visit('/', { cookie })).status;
  };
  const { organization_id, team_id } = await db
    .selectFrom('sandboxes')
    .select(['organization_id', 'team_id'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  assert.equal(await ofKey({ scope: 'read' }), 401);
  assert.equal(await ofKey({ scope: 'full', team_only: true }), 200);
  assert.equal(await ofKey({ team_id: await insertTeam(db, organization_id, 'others') }), 404);
  assert.equal(await ofKey({ team_id, team_only: false }), 200);
});

test('the origin of a port does not serve the API, and the origin of the API does not serve a port', async () => {
  const { cookie } = await openLink();
  const { text } = await visit('/v1/runs', { cookie, headers: { authorization: `Bearer ${API_KEY}` } });
  assert.equal(text, 'GET /v1/runs');
  const direct = await visit('/.well-known/coppice/preview-origin', { host: '127.0.0.1', cookie });
  assert.equal(direct.status, 404);
});

test('a page of another origin may not send requests for its visitor, a page of the same sandbox may', async () => {
  const { cookie, preview } = await openLink();
  const own = new URL(preview.url).origin;
  const from = (origin: string) => visit('/', { cookie, method: 'POST', headers: { origin } });
  assert.equal((await from(own)).status, 200);
  assert.equal((await from(own.replace(String(PORT), '3000'))).status, 200);
  for (const origin of ['https://evil.example', 'null', `http://${PORT}-run${'0'.repeat(20)}.localhost`]) {
    const { status, text } = await from(origin);
    assert.equal(status, 403);
    assert.match(text, /forbidden_origin/u);
  }
});

test('a WebSocket of the page is passed on, one of another page is refused', async () => {
  const { cookie, preview } = await openLink();
  const { origin, host } = new URL(preview.url);
  const address = harness.control?.address.replace('http', 'ws') ?? '';
  const socket = new WebSocket(`${address}/live`, { headers: { cookie, origin, host } });
  const [message] = (await once(socket, 'message')) as [Buffer];
  assert.equal(String(message), 'welcome');
  socket.close();
  const foreign = new WebSocket(`${address}/live`, {
    headers: { cookie, origin: 'https://evil.example', host },
  });
  const [, answer] = (await once(foreign, 'unexpected-response')) as [unknown, IncomingMessage];
  assert.equal(answer.statusCode, 403);
});

test('a revoked link and its cookies are refused from the next request on', async () => {
  const { cookie, preview } = await openLink();
  const listed = (await harness.call('GET', `/v1/runs/${id}/previews`)).body as PreviewRecord[];
  assert.ok(listed.some((record) => record.id === preview.id));
  assert.equal((await visit('/', { cookie })).status, 200);
  const path = `/v1/runs/${id}/previews/${preview.id}`;
  assert.equal((await harness.call('DELETE', path)).status, 204);
  const { status, text } = await visit('/', { cookie });
  assert.equal(status, 401);
  assert.match(text, /revoked/u);
  const { pathname, search } = new URL(preview.url);
  assert.equal((await visit(`${pathname}${search}`)).status, 401);
  assert.equal((await harness.call('DELETE', path)).status, 404);
});

test('an expired link opens nothing', async () => {
  const { cookie, preview } = await openLink();
  await using db = harness.openDatabase();
  await db
    .updateTable('previews')
    .set({ expires_at: Date.now() - 1 })
    .where('id', '=', preview.id)
    .execute();
  const { status, text } = await visit('/', { cookie });
  assert.equal(status, 401);
  assert.match(text, /expired/u);
});

test('links are only for own sandboxes and valid ports, and at most a hundred for each sandbox', async () => {
  const foreign = await harness.addOrganization();
  const path = `/v1/runs/${id}/ports/${PORT}/preview`;
  assert.equal((await harness.call('POST', path, { apiKey: foreign })).status, 404);
  assert.equal((await harness.call('GET', `/v1/runs/${id}/previews`, { apiKey: foreign })).status, 404);
  assert.equal((await createPreview({}, 0)).status, 400);
  assert.equal((await createPreview({}, 'x')).status, 400);
  assert.equal((await createPreview({ expires_in: 59 })).status, 400);
  assert.equal((await createPreview({ seconds: 60 })).status, 400);
  ({ id } = await harness.create());
  for (let count = 0; count < 100; count += 1) assert.equal((await createPreview()).status, 201);
  assert.equal((await createPreview()).status, 429);
});
