/** The dashboard at `/`, as control sends it. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import pino from 'pino';
import { PAGES } from '../../../../dashboard/src/app/pages.ts';
import { RESERVED_NAMES } from '../static-site/sites.ts';
import { StaticSite } from '../static-site/static-site.ts';
import { API_KEY, startHarness } from '../testing/control-harness.ts';
import { startDashboardHarness } from '../testing/dashboard-harness.ts';
import { sendPlain, type PlainAnswer } from '../testing/requests/plain-request.ts';
import type { SiteHarness } from '../testing/site-harness.ts';
import type { HttpParts } from './parts.ts';
import { buildServer } from './server.ts';

const DEEP = '/sandboxes/run0123456789abcdef0123/files';
let site: SiteHarness;
let asset = '';
before(async () => {
  site = await startDashboardHarness();
  const [script] = /\/assets\/[\w.-]+\.js\b/u.exec((await get('/')).body.toString()) ?? [];
  assert.ok(script !== undefined, 'the document names its script');
  asset = script;
});
after(() => site[Symbol.asyncDispose]());

function get(path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<PlainAnswer> {
  return sendPlain(site.harness.address, path, { headers, method });
}

function readPolicy({ headers }: PlainAnswer): Map<string, string> {
  const parts = headers['content-security-policy']?.split('; ') ?? [];
  return new Map(parts.map((part) => [part.split(' ', 1)[0] ?? '', part.replace(/^\S+ ?/u, '')]));
}

test('every page, and every path below one, answers with the same document, without a key', async () => {
  const home = await get('/');
  assert.equal(home.status, 200);
  assert.match(home.body.toString(), /^<!doctype html>/u);
  for (const page of PAGES)
    for (const path of [`/${page}`, `/${page}/`, `/${page}/a/b.js`, `/${page}?next=%2Fx`]) {
      const { status, headers, body } = await get(path);
      assert.equal(status, 200, path);
      assert.equal(headers['content-type'], 'text/html; charset=utf-8', path);
      assert.deepEqual(body, home.body, path);
    }
});

test('a page may load only files of this service, and no other page may show it', async () => {
  for (const path of ['/', '/sign-in', DEEP, '/theme.js', asset]) {
    const answer = await get(path);
    const { headers } = answer;
    assert.deepEqual(
      Object.fromEntries(readPolicy(answer)),
      {
        'default-src': "'none'",
        'script-src': "'self'",
        'style-src': "'self'",
        'connect-src': "'self'",
        'img-src': "'self' blob:",
        'font-src': "'self'",
        'base-uri': "'none'",
        'form-action': "'none'",
        'frame-ancestors': "'none'",
        'require-trusted-types-for': "'script'",
        'trusted-types': "'none'",
      },
      path,
    );
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert.equal(headers['x-frame-options'], 'DENY');
    assert.equal(headers['referrer-policy'], 'same-origin');
    assert.equal(headers['cross-origin-opener-policy'], 'same-origin');
    assert.equal(headers['cross-origin-resource-policy'], 'same-origin');
    assert.match(headers['permissions-policy'] ?? '', /camera=\(\).*clipboard-write=\(self\)/u);
    assert.equal(headers['access-control-allow-origin'], undefined);
    assert.equal(headers['set-cookie'], undefined);
  }
});

test('the document has no script or style inside, and all files that it names exist', async () => {
  const text = (await get('/')).body.toString();
  assert.doesNotMatch(text, /<style|\sstyle=|\son\w+=|javascript:|data:/iu);
  const scripts = text.match(/<script\b[^>]*>[^]*?<\/script>/gu) ?? [];
  assert.ok(scripts.length > 0);
  for (const script of scripts) assert.match(script, /^<script [^>]*src="\/[^"]+"[^>]*><\/script>$/u);
  const named = [...text.matchAll(/\b(?:src|href)="([^"]*)"/gu)].map(([, path = '']) => path);
  assert.ok(
    named.includes(asset) && named.includes('/theme.js') && named.includes('/icon.svg'),
    named.join(' '),
  );
  for (const path of named) {
    const { status, headers } = await get(path);
    assert.equal(status, 200, path);
    assert.doesNotMatch(headers['content-type'] ?? '', /html/u, path);
  }
});

test('all built files are served, those with a hash in their names for good', async () => {
  const paths = readdirSync(site.directory, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => `${entry.parentPath}/${entry.name}`.slice(site.directory.length))
    .map((path) =>
      path
        .replace(/\.gz$/u, '')
        .replace(/^\/index\.html$/u, '/')
        .replace(/\.html$/u, ''),
    );
  assert.ok(paths.length > PAGES.length + 3, paths.join(' '));
  for (const path of paths) {
    const { status, headers } = await get(path);
    assert.equal(status, 200, path);
    const isFixed = path.startsWith('/assets/');
    assert.equal(
      headers['cache-control'],
      isFixed ? 'public, max-age=31536000, immutable' : 'no-cache',
      path,
    );
  }
});

test('a client that has a file gets 304, and one with another version the file', async () => {
  for (const path of ['/', DEEP, '/theme.js', asset]) {
    const etag = (await get(path)).headers['etag'] ?? '';
    assert.match(etag, /^"[\w-]{22}"$/u);
    const again = await get(path, { 'if-none-match': `"other", W/${etag}` });
    assert.equal(again.status, 304, path);
    assert.equal(again.body.length, 0);
    assert.ok(readPolicy(again).has('default-src'), 'browsers use the headers of a 304');
    assert.equal((await get(path, { 'if-none-match': '"other"' })).status, 200);
  }
});

test('a client that accepts gzip gets the same content, smaller, under a tag of its own', async () => {
  const plain = await get(asset);
  const packed = await get(asset, { 'accept-encoding': 'br, gzip;q=0.5' });
  assert.equal(plain.headers['content-encoding'], undefined);
  assert.equal(packed.headers['content-encoding'], 'gzip');
  assert.equal(packed.headers['vary'], 'accept-encoding');
  assert.deepEqual(gunzipSync(packed.body), plain.body);
  assert.ok(packed.body.length < plain.body.length);
  assert.notEqual(packed.headers['etag'], plain.headers['etag']);
});

test('HEAD answers like GET, without a body, and other methods are refused', async () => {
  for (const path of ['/', '/sign-in', DEEP, asset]) {
    const [answer, head] = [await get(path), await get(path, {}, 'HEAD')];
    assert.equal(head.status, 200);
    assert.equal(head.body.length, 0);
    for (const name of ['content-type', 'content-length', 'etag', 'cache-control'])
      assert.equal(head.headers[name], answer.headers[name], `${path}: ${name}`);
    const posted = await get(path, {}, 'POST');
    assert.equal(posted.status, 405, path);
    assert.equal(posted.headers['allow'], 'GET, HEAD');
  }
});

test('unknown paths, and those of the API, answer as they do without the dashboard', async () => {
  const paths = ['/nothing', '/index', '/index.html', '/sign-in.html', '/sandboxesx', '/assets', '/%00'];
  for (const path of [...paths, '/assets/', '/assets/nothing.js', `${asset}.gz`, `${asset}/x`]) {
    const { status, headers, body } = await get(path);
    assert.equal(status, 404, path);
    assert.match(headers['content-type'] ?? '', /^application\/json/u, path);
    assert.equal(headers['content-security-policy'], undefined, path);
    assert.equal((JSON.parse(body.toString()) as { error: { code: string } }).error.code, 'not_found');
  }
  for (const path of ['/v1', '/v1/runs', '/v1/nothing', '/account/me']) {
    const { status, headers } = await get(path);
    assert.equal(status, 401, path);
    assert.match(headers['content-type'] ?? '', /^application\/json/u, path);
  }
  assert.equal((await get('/v1/runs', { authorization: `Bearer ${API_KEY}` })).status, 200);
  assert.equal((await get('/healthz')).status, 200);
  assert.equal((await get('/docs')).status, 404, 'this service has no documentation');
});

test('no path leaves the dashboard', async () => {
  const home = (await get('/')).body;
  const paths = [
    '/../../../../etc/passwd',
    '/assets/../../../../etc/passwd',
    '/assets/..%2f..%2f..%2fetc%2fpasswd',
    '/assets/%2e%2e/%2e%2e/etc/passwd',
    String.raw`/assets/..\..\etc\passwd`,
    '//etc/passwd',
    '/sandboxes/../../etc/passwd',
    '/sandboxes/..%2f..%2fetc%2fpasswd',
  ];
  for (const path of paths) {
    const { status, headers, body } = await get(path);
    assert.ok([400, 404].includes(status) || body.equals(home), `${path}: ${status}`);
    assert.equal(headers['location'], undefined, path);
  }
});

test('under the origin of a preview all paths belong to the guest', async () => {
  const { port } = new URL(site.harness.address);
  for (const path of ['/', '/sign-in', '/theme.js', asset]) {
    const host = `3000-run0123456789abcdef0123.localhost:${port}`;
    const { status, headers, body } = await get(path, { host });
    assert.equal(status, 401, path);
    assert.equal(headers['content-security-policy'], undefined, path);
    assert.doesNotMatch(body.toString(), /<html/u, path);
  }
});

test('the document of the API says nothing about the dashboard', async () => {
  const { body } = await get('/openapi.json');
  const { paths } = JSON.parse(body.toString()) as { paths: Record<string, unknown> };
  const own = ['/', ...PAGES.map((page) => `/${page}`), '/assets/*', '/theme.js', '/icon.svg'];
  assert.deepEqual(
    Object.keys(paths).filter((path) => own.some((each) => path === each || path.startsWith(`${each}/*`))),
    [],
  );
});

test('without a built dashboard there is no such route', async () => {
  await using harness = await startHarness();
  for (const path of ['/', '/sign-in', '/assets/x.js', '/theme.js']) {
    const { status, headers } = await sendPlain(harness.address, path);
    assert.equal(status, 404, path);
    assert.match(headers['content-type'] ?? '', /^application\/json/u, path);
  }
});

test('the names that a dashboard may not use are those of all routes of the service', async () => {
  const parts = {
    version: '1',
    exposure: { hstsSeconds: 0, trustedProxies: [], corsOrigins: [] },
    metricsToken: 'token',
    documentation: new StaticSite(new Map()),
  };
  const { app } = await buildServer(parts as unknown as HttpParts, pino({ level: 'silent' }));
  const routes = app.printRoutes({ commonPrefix: false });
  await app.close();
  const names = [...routes.matchAll(/^[├└]── \/([^\s/:*]+)/gmu)].map(([, name]) => name);
  assert.deepEqual(new Set(names), RESERVED_NAMES);
});
