import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AccountClient } from '../testing/requests/account-client.ts';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let owner: AccountClient;
let key = '';
let keyId = '';
let id = '';
before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  ({ key, id: keyId } = (await owner.call('POST', `${owner.team}/keys`, { name: 'k' })).body);
  ({ id } = (await harness.call('POST', '/v1/runs', { apiKey: key, body: { image: 'node:22-slim' } })).body);
});
after(() => harness[Symbol.asyncDispose]());

interface LinkRequest {
  path: string;
  method: string;
  expires_in?: number;
}

async function createLink(body: LinkRequest, apiKey = key): Promise<string> {
  const answer = await harness.call('POST', `/v1/runs/${id}/files/links`, { apiKey, body });
  assert.equal(answer.status, 201, JSON.stringify(answer.body));
  return answer.body.url;
}

/** Sends a request without an API key. */
function fetchLink(url: string, init: RequestInit = {}): Promise<Response> {
  return fetch(url, { ...init, signal: AbortSignal.timeout(10_000) });
}

test('a download link reads its file without a key, in ranges, as nothing that a browser runs', async () => {
  harness.runner.files.contents.set('/page.html', Buffer.from('<script>alert(1)</script>'));
  const url = await createLink({ path: '/page.html', method: 'download' });
  assert.ok(url.startsWith(`${harness.control?.address}/files/`), url);
  const response = await fetchLink(url);
  assert.deepEqual([response.status, await response.text()], [200, '<script>alert(1)</script>']);
  for (const [name, value] of [
    ['content-type', 'application/octet-stream'],
    ['content-disposition', "attachment; filename*=UTF-8''page.html"],
    ['x-content-type-options', 'nosniff'],
    ['content-security-policy', "default-src 'none'; sandbox"],
    ['cache-control', 'no-store'],
    ['referrer-policy', 'no-referrer'],
  ] as const)
    assert.equal(response.headers.get(name), value);
  const part = await fetchLink(url, { headers: { range: 'bytes=1-6' } });
  assert.deepEqual([part.status, await part.text()], [206, 'script']);
  assert.equal((await fetchLink(url, { method: 'HEAD' })).headers.get('content-length'), '25');
});

test('an upload link writes its file without a key, raw and as a form', async () => {
  const url = await createLink({ path: '/in', method: 'upload' });
  const raw = await fetchLink(url, { method: 'PUT', body: 'raw' });
  assert.deepEqual(await raw.json(), { path: '/in', size: 3 });
  assert.equal(harness.runner.files.contents.get('/in')?.toString(), 'raw');
  const form = new FormData();
  form.append('file', new Blob(['formed']), 'name');
  assert.equal((await fetchLink(url, { method: 'POST', body: form })).status, 200);
  assert.equal(harness.runner.files.contents.get('/in')?.toString(), 'formed');
});

test('a link and its transfers are in the audit log, without the token', async () => {
  harness.runner.files.contents.set('/logged', Buffer.from('12'));
  const url = await createLink({ path: '/logged', method: 'download' });
  await (await fetchLink(url)).text();
  const log = await (await harness.fetch('GET', `/v1/runs/${id}/audit`, { apiKey: key })).text();
  const [link = '', download = ''] = log.trim().split('\n').slice(-2);
  assert.match(
    link,
    /"event":"file.link","data":\{"expires_at":"20[^"]+Z","method":"download","path":"\/logged"\}/,
  );
  assert.match(download, /"event":"file.download","data":\{"path":"\/logged","size":2\}/);
  assert.equal(log.includes(new URL(url).pathname.split('/').at(-1) ?? '?'), false);
});

test('a link allows only its own method, and no query changes its file', async () => {
  harness.runner.files.contents.set('/a', Buffer.from('a'));
  harness.runner.files.contents.set('/b', Buffer.from('b'));
  const download = await createLink({ path: '/a', method: 'download' });
  const upload = await createLink({ path: '/up', method: 'upload' });
  assert.equal((await fetchLink(download, { method: 'PUT', body: 'x' })).status, 403);
  assert.equal((await fetchLink(upload)).status, 403);
  assert.equal((await fetchLink(upload, { method: 'DELETE' })).status, 405);
  assert.equal(await (await fetchLink(`${download}?path=/b`)).text(), 'a');
});

test('a link is no credential for the API, and an API key no link', async () => {
  const token = (await createLink({ path: '/a', method: 'download' })).split('/').at(-1);
  const asKey = await harness.call('GET', `/v1/runs/${id}`, { apiKey: token ?? '' });
  assert.equal(asKey.status, 401);
  assert.equal((await harness.fetch('GET', '/files/none', { apiKey: key })).status, 401);
});

/** Changes a character of the signature. The last one has bits that do not count. */
function forge(url: string): string {
  return `${url.slice(0, -2)}${url.at(-2) === 'A' ? 'B' : 'A'}${url.at(-1)}`;
}

test('an expired or changed link is 401', async () => {
  const url = await createLink({ path: '/a', method: 'download', expires_in: 1 });
  const changed = await fetchLink(forge(url));
  assert.equal(changed.status, 401);
  const deadline = Date.now() + 10_000;
  let status = 0;
  while (status !== 401 && Date.now() < deadline) {
    ({ status } = await fetchLink(url));
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(status, 401);
});

test('only links that are not signed count as wrong keys of their address', { timeout: 20_000 }, async () => {
  await using small = await startHarness({ wrongKeysPerMinute: 3 });
  const { id: smallId } = await small.create();
  small.runner.files.contents.set('/a', Buffer.from('a'));
  const link = async (expires_in: number): Promise<string> => {
    const body = { path: '/a', method: 'download', expires_in };
    return (await small.call('POST', `/v1/runs/${smallId}/files/links`, { body })).body.url;
  };
  const [expired, valid] = [await link(1), await link(60)];
  await waitFor('the end of the link', async () => (await fetchLink(expired)).status === 401);
  for (let round = 0; round < 5; round += 1) assert.equal((await fetchLink(expired)).status, 401);
  const forged = forge(valid);
  for (const status of [401, 401, 401, 429]) assert.equal((await fetchLink(forged)).status, status);
  assert.equal((await fetchLink(valid)).status, 200);
});

test('links take only so many of the requests of an organization', { timeout: 20_000 }, async () => {
  const url = await createLink({ path: '/slow', method: 'upload' });
  const leave = new AbortController();
  const begun = () => harness.runner.files.uploads.filter(({ path }) => path === '/slow').length;
  const open = Array.from({ length: 8 }, () => {
    const body = new ReadableStream({ start: (stream) => stream.enqueue(Buffer.from('x')) });
    return fetch(url, { method: 'PUT', body, duplex: 'half', signal: leave.signal });
  });
  const ends = Promise.allSettled(open);
  await waitFor('the uploads', () => begun() === 8);
  const refused = await fetchLink(url, { method: 'PUT', body: 'x' });
  assert.equal(refused.status, 429);
  assert.match(await refused.text(), /8 transfers by links are open already, the limit is 8/);
  leave.abort();
  await ends;
  await waitFor('room', async () => (await fetchLink(url, { method: 'PUT', body: 'x' })).status === 200);
});

test('pages of other origins may use a link', async () => {
  harness.runner.files.contents.set('/a', Buffer.from('a'));
  const url = await createLink({ path: '/a', method: 'download' });
  const response = await fetchLink(url, { headers: { origin: 'https://app.example' } });
  assert.equal(response.headers.get('access-control-allow-origin'), '*');
  const headers = { origin: 'https://app.example', 'access-control-request-method': 'PUT' };
  const preflight = await fetchLink(url, { method: 'OPTIONS', headers });
  assert.equal(preflight.status, 204);
  assert.match(preflight.headers.get('access-control-allow-methods') ?? '', /PUT/);
});

test('no token is in the log, whatever the method and the path', async () => {
  const url = await createLink({ path: '/a', method: 'download' });
  const token = url.split('/').at(-1) ?? '';
  for (const method of ['GET', 'PUT', 'DELETE', 'PATCH']) {
    await fetchLink(url, { method });
    await fetchLink(`${url}/more`, { method });
    await fetchLink(`${url}?x=1`, { method });
  }
  assert.ok(harness.logLines.some((line) => line.includes('/files/')));
  assert.equal(harness.logLines.filter((line) => line.includes(token)).length, 0);
});

test('an invalid field is 400 and is named', async () => {
  for (const [body, field] of [
    [{ method: 'download' }, 'path'],
    [{ path: '/a' }, 'method'],
    [{ path: '/a', method: 'delete' }, 'method'],
    [{ path: '/a', method: 'upload', expires_in: 0 }, 'expires_in'],
    [{ path: '/a', method: 'upload', expires_in: 604_801 }, 'expires_in'],
    [{ path: `/${'x'.repeat(4000)}`, method: 'upload' }, 'path'],
  ] as const) {
    const refused = await harness.call('POST', `/v1/runs/${id}/files/links`, { apiKey: key, body });
    assert.equal(refused.status, 400, JSON.stringify(body).slice(0, 100));
    assert.match(refused.body.error.message, new RegExp(`^${field}: `));
  }
});

test('a link ends with its API key', async () => {
  harness.runner.files.contents.set('/a', Buffer.from('a'));
  const url = await createLink({ path: '/a', method: 'download' });
  assert.equal((await fetchLink(url)).status, 200);
  const revoked = await owner.call('DELETE', `${owner.team}/keys/${keyId}`);
  assert.equal(revoked.status, 204);
  const { status, headers } = await fetchLink(url);
  assert.deepEqual([status, headers.get('cache-control')], [401, 'no-store']);
});

test('a link ends with its sandbox', async () => {
  ({ key, id: keyId } = (await owner.call('POST', `${owner.team}/keys`, { name: 'second' })).body);
  const url = await createLink({ path: '/a', method: 'download' });
  assert.equal((await fetchLink(url)).status, 200);
  await harness.call('DELETE', `/v1/runs/${id}`, { apiKey: key });
  assert.ok([404, 409].includes((await fetchLink(url)).status));
});
