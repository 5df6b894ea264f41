/** The documentation at /docs, as control sends it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { exampleBody, exampleQuery } from '../../../../docs-site/src/api/curl-example.ts';
import { listOperations, readOpenApi } from '../../../../docs-site/src/api/openapi-document.ts';
import { API_KEY } from '../testing/control-harness.ts';
import { startDocumentationHarness } from '../testing/documentation-harness.ts';
import { sendPlain, type PlainAnswer } from '../testing/requests/plain-request.ts';
import type { SiteHarness } from '../testing/site-harness.ts';

const PATIENCE_MS = 20_000;
let site: SiteHarness;
before(async () => {
  site = await startDocumentationHarness();
});
after(() => site[Symbol.asyncDispose]());

function get(path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<PlainAnswer> {
  return sendPlain(site.harness.address, path, { headers, method });
}

async function send(method: string, path: string, body: unknown): Promise<{ status: number; text: string }> {
  const answer = await site.harness.fetch(method, path, { body, signal: AbortSignal.timeout(PATIENCE_MS) });
  return { status: answer.status, text: (await answer.text()).slice(0, 300) };
}

async function findAsset(extension: string): Promise<string> {
  const page = (await get('/docs')).body.toString();
  const [asset] = new RegExp(String.raw`/docs/assets/[\w.-]+\.${extension}\b`, 'u').exec(page) ?? [];
  assert.ok(asset !== undefined, `the page names a file .${extension}`);
  return asset;
}

test('pages need no key and say what they are', async () => {
  for (const path of ['/docs', '/docs/quick-start', '/docs/guides/files', '/docs/api/create-sandbox']) {
    const { status, headers, body } = await get(path);
    assert.equal(status, 200, path);
    assert.equal(headers['content-type'], 'text/html; charset=utf-8');
    assert.match(body.toString(), /^<!doctype html>/u);
  }
});

/** Bytes of the memory that control has. */
function measure(): number {
  const [, pages = ''] = readFileSync(`/proc/${site.spawned.pid}/statm`, 'latin1').split(' ');
  return Number(pages) * 4096;
}

test('a client that asks often and reads nothing fills no memory', async () => {
  const { hostname, port } = new URL(site.harness.address);
  const page = (await get('/docs')).body.toString();
  const [index] = /\/docs\/assets\/search[\w.-]+\.json/u.exec(page) ?? [await findAsset('js')];
  for (const path of [index ?? '', '/openapi.json']) {
    const { length } = (await get(path)).body;
    const count = Math.ceil((200 << 20) / length);
    const before = measure();
    const client = connect(Number(port), hostname);
    await once(client, 'connect');
    client.pause();
    client.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`.repeat(count));
    await delay(2000);
    const grown = measure() - before;
    client.destroy();
    assert.ok(grown < 100 << 20, `${path}: ${grown} bytes for ${count} answers of ${length}`);
  }
});

test('a page may load only files of this service, and no other page may show it', async () => {
  for (const path of ['/docs', '/docs/guides/files', '/docs/nothing', await findAsset('js')]) {
    const { headers } = await get(path);
    const policy = new Map(
      headers['content-security-policy']?.split('; ').map((part) => {
        const [name = '', ...sources] = part.split(' ');
        return [name, sources.join(' ')];
      }),
    );
    assert.equal(policy.get('default-src'), "'none'", path);
    for (const name of ['script-src', 'style-src', 'img-src', 'connect-src'])
      assert.equal(policy.get(name), "'self'", `${path}: ${name}`);
    for (const name of ['base-uri', 'form-action', 'frame-ancestors'])
      assert.equal(policy.get(name), "'none'", `${path}: ${name}`);
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert.equal(headers['referrer-policy'], 'same-origin');
    assert.equal(headers['cross-origin-opener-policy'], 'same-origin');
    assert.equal(headers['access-control-allow-origin'], undefined);
    assert.equal(headers['set-cookie'], undefined);
  }
});

test('a client that has a page gets 304, and one with another version the page', async () => {
  const { headers } = await get('/docs/guides/files');
  assert.equal(headers['cache-control'], 'no-cache');
  const etag = headers['etag'] ?? '';
  assert.match(etag, /^"[\w-]{22}"$/u);
  for (const tag of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
    const again = await get('/docs/guides/files', { 'if-none-match': tag });
    assert.equal(again.status, 304, tag);
    assert.equal(again.body.length, 0);
    assert.equal(again.headers['etag'], etag);
    assert.ok(again.headers['content-security-policy'] !== undefined, 'browsers use the headers of a 304');
  }
  assert.equal((await get('/docs/guides/files', { 'if-none-match': '"other"' })).status, 200);
  const other = await get('/docs/guides/disks', { 'if-none-match': etag });
  assert.equal(other.status, 200, 'each page has a tag of its own');
});

test('files with a hash in their names are kept for good', async () => {
  for (const extension of ['css', 'js', 'json', 'svg']) {
    const { status, headers } = await get(await findAsset(extension));
    assert.equal(status, 200);
    assert.equal(headers['cache-control'], 'public, max-age=31536000, immutable');
  }
});

test('a client that accepts gzip gets the same content, smaller, under a tag of its own', async () => {
  const plain = await get('/docs/guides/files');
  const packed = await get('/docs/guides/files', { 'accept-encoding': 'br, gzip;q=0.5' });
  assert.equal(plain.headers['content-encoding'], undefined);
  assert.equal(packed.headers['content-encoding'], 'gzip');
  assert.equal(packed.headers['vary'], 'accept-encoding');
  assert.deepEqual(gunzipSync(packed.body), plain.body);
  assert.ok(packed.body.length < plain.body.length / 2);
  assert.notEqual(packed.headers['etag'], plain.headers['etag']);
  const refusing = await get('/docs', { 'accept-encoding': 'gzip;q=0' });
  assert.equal(refusing.headers['content-encoding'], undefined);
});

test('HEAD answers like GET, without a body', async () => {
  for (const path of ['/docs', '/docs/guides/files', '/docs/nothing']) {
    const [get200, head] = [await get(path), await get(path, {}, 'HEAD')];
    assert.equal(head.status, get200.status);
    assert.equal(head.body.length, 0);
    for (const name of ['content-type', 'content-length', 'etag', 'cache-control'])
      assert.equal(head.headers[name], get200.headers[name], `${path}: ${name}`);
  }
});

test('an unknown path is 404 with a page that has the search', async () => {
  for (const path of ['/docs/nothing', '/docs/guides/files.html', '/docs/guides/files.md', '/docs/x/../y']) {
    const { status, headers, body } = await get(path);
    assert.equal(status, 404, path);
    assert.equal(headers['content-type'], 'text/html; charset=utf-8');
    assert.equal(headers['cache-control'], 'no-cache');
    assert.match(body.toString(), /There is no such page[^]*data-open-search/u);
    assert.doesNotMatch(body.toString(), /nothing/u, 'nothing of the request is in the page');
  }
});

test('no path leaves the documentation', async () => {
  const paths = [
    '/docs/../../../../etc/passwd',
    '/docs/..%2f..%2f..%2fetc%2fpasswd',
    '/docs/%2e%2e/%2e%2e/etc/passwd',
    String.raw`/docs/..\..\etc\passwd`,
    '/docs//etc/passwd',
    '/docs/guides/files.html.gz',
    '/docs/%00',
  ];
  for (const path of paths) {
    const { status, body } = await get(path);
    assert.ok(status === 404 || status === 400, `${path}: ${status}`);
    assert.doesNotMatch(body.toString(), /root:/u, path);
  }
});

test('a slash too many leads to the page, and never elsewhere', async () => {
  for (const [path, target] of [
    ['/docs/', '/docs'],
    ['/docs/guides/files/', '/docs/guides/files'],
  ] as const) {
    const { status, headers } = await get(path);
    assert.equal(status, 308);
    assert.equal(headers['location'], target);
  }
  for (const path of ['/docs//evil.example/', '/docs/evil.example//']) {
    const { status, headers } = await get(path);
    assert.equal(status, 404, path);
    assert.equal(headers['location'], undefined);
  }
});

test('other methods are refused', async () => {
  for (const path of ['/docs', '/docs/guides/files']) {
    const { status, headers } = await get(path, {}, 'POST');
    assert.equal(status, 405, path);
    assert.equal(headers['allow'], 'GET, HEAD');
  }
});

test('routes beside the documentation still need their key', async () => {
  for (const path of ['/v1/runs', '/docs/../v1/runs', '/v1/runs?/docs', '/account/me']) {
    const { status, body } = await get(path);
    assert.ok([401, 404].includes(status), `${path}: ${status}`);
    assert.doesNotMatch(body.toString(), /^\[/u);
  }
  assert.equal((await get('/v1/runs', { authorization: `Bearer ${API_KEY}` })).status, 200);
  assert.equal((await get('/docsx')).status, 404);
  assert.equal((await get('/docsx')).headers['content-type'], 'application/json; charset=utf-8');
});

test('under the origin of a preview /docs belongs to the guest', async () => {
  const { port } = new URL(site.harness.address);
  const { status, body } = await get('/docs', { host: `3000-run0123456789abcdef0123.localhost:${port}` });
  assert.equal(status, 401);
  assert.doesNotMatch(body.toString(), /<html/u);
});

test('the document of the API says nothing about the documentation', async () => {
  const { body } = await get('/openapi.json');
  const { paths } = JSON.parse(body.toString()) as { paths: Record<string, unknown> };
  assert.deepEqual(
    Object.keys(paths).filter((path) => path.startsWith('/docs')),
    [],
  );
});

test('the example of each body is one that the service takes', async () => {
  const { id } = await site.harness.create();
  const document = readOpenApi(
    fileURLToPath(new URL('../../../../../docs/reference/openapi.json', import.meta.url)),
  );
  const bodies = listOperations(document)
    .filter(({ path }) => path.startsWith('/v1/'))
    .map((operation) => ({ operation, body: exampleBody(operation, document) }))
    .filter(({ body }) => body !== undefined);
  assert.ok(bodies.length > 20, `${bodies.length} bodies`);
  for (const { operation, body } of bodies) {
    const { method, path, operationId } = operation;
    const address = path
      .replace('/runs/{id}', `/runs/${id}`)
      .replace('{registry}', 'ghcr.io')
      .replace('{name}', 'example')
      .replaceAll(/\{\w+\}/gu, '3000');
    const { status, text } = await send(method, `${address}${exampleQuery(operation, document)}`, body);
    assert.ok(status !== 400 && status !== 422 && status !== 405, `${operationId}: ${status} ${text}`);
  }
});
