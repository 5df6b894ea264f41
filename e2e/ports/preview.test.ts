import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { Browser } from '../fixtures/api/browser.ts';
import { startClientSite } from '../fixtures/api/client-site.ts';
import {
  BEARER,
  GuestPort,
  startInBackground,
  startPortServer,
  uploadFile,
  uploadPackages,
} from '../fixtures/ports/guest-port.ts';
import { call, openUpgrade, type WireAnswer } from '../fixtures/api/http-call.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';

interface Preview {
  id: string;
  port: number;
  url: string;
  created_at: string;
  expires_at: string;
}

const PORT = 3000;
const VITE_PORT = 5173;
const SITE = '/srv/site';
const SITE_SOURCE = new URL('../fixtures/guest/vite-site/', import.meta.url);
const SITE_FILES = ['index.html', 'page.js', 'vite.config.js'];

describe('preview links', () => {
  const resources = new AsyncDisposableStack();
  let shared: Awaited<ReturnType<typeof openShared>>;
  let browser: Browser;
  let id = '';
  before(async () => {
    shared = await openShared();
    const { api } = shared;
    ({ id } = await api.create({ image: BASE_IMAGE, mem_mib: 1024, vcpus: 2, timeout: 0 }));
    const startBrowser = async (): Promise<void> => {
      browser = resources.use(await Browser.start());
    };
    await Promise.all([startBrowser(), startPortServer(api, id, PORT), startVite()]);
  });
  after(async () => {
    await resources.disposeAsync();
    await shared.api.destroy(id);
  });

  async function startVite(): Promise<void> {
    const { api } = shared;
    await uploadPackages(api, id, SITE, ['vite']);
    for (const name of SITE_FILES)
      await uploadFile(api, id, `${SITE}/${name}`, readFileSync(new URL(name, SITE_SOURCE)));
    await showText('the first text');
    const command = `sh -c 'cd ${SITE} && exec node node_modules/vite/bin/vite.js'`;
    await startInBackground(api, id, 'vite', command);
    await new GuestPort(api, id, VITE_PORT).waitUntilServing();
  }

  const showText = async (text: string): Promise<void> =>
    uploadFile(shared.api, id, `${SITE}/text.js`, `export const text = ${JSON.stringify(text)};\n`);
  const createPreview = async (port: number): Promise<Preview> => {
    const answer = await shared.api.call('POST', `/v1/runs/${id}/ports/${port}/preview`, { body: {} });
    assert.equal(answer.status, 201, answer.text);
    return answer.body as unknown as Preview;
  };
  /** Sends a request like a client without the restrictions of a browser. */
  const ask = async (
    url: string,
    headers: Record<string, string> = {},
    method = 'GET',
  ): Promise<WireAnswer> => {
    const { host, pathname, search } = new URL(url);
    return call(shared.service.address, { method, path: pathname + search, headers: { host, ...headers } });
  };
  const codeOf = ({ text }: WireAnswer): string =>
    (JSON.parse(text) as { error: { code: string } }).error.code;
  /** Opens the link and returns the cookie that it sets. */
  const visit = async (url: string): Promise<{ origin: string; cookie: string }> => {
    const answer = await ask(url);
    assert.deepEqual([answer.status, answer.headers.location], [303, '/']);
    const [set = '', ...more] = answer.headers['set-cookie'] ?? [];
    assert.deepEqual(more, []);
    assert.match(set, /; Path=\/; HttpOnly; SameSite=Lax; Max-Age=\d+$/u);
    return { origin: new URL(url).origin, cookie: set.split(';')[0]! };
  };

  test('a browser shows the page of Vite in a sandbox, and a changed file without a reload', async () => {
    const preview = await createPreview(VITE_PORT);
    const { origin } = new URL(preview.url);
    assert.match(origin, new RegExp(`^http://${VITE_PORT}-${id}\\.localhost:\\d+$`, 'u'));
    const page = await browser.open(preview.url);
    assert.equal(page.url(), `${origin}/`);
    await page.getByText('the first text').waitFor();
    // Vite reports a change only to connected pages: a page that connects a moment later never shows it.
    const connected = page.waitForEvent('console', (message) => message.text() === '[vite] connected.');
    await Promise.all([connected, page.reload()]);
    await page.evaluate('window.isSamePage = true');
    await showText('another text');
    await page.getByText('another text').waitFor();
    assert.equal(await page.evaluate('window.isSamePage'), true);
    await page.screenshot({ path: join(tmpdir(), 'coppice-e2e-preview.png') });
    assert.equal(await page.evaluate('document.cookie'), '', 'a script sees the preview cookie');
    await page.close();
  });

  test("a page's WebSocket reaches the sandbox, whose own cookies pass and which never sees the preview cookie", async () => {
    const page = await browser.open((await createPreview(PORT)).url);
    const echo = await page.evaluate(`new Promise((resolve, reject) => {
      const socket = new WebSocket('ws://' + location.host + '/socket');
      const messages = [];
      socket.onopen = () => socket.send('from the page');
      socket.onerror = () => reject(new Error('no socket'));
      socket.onmessage = ({ data }) => messages.push(data) === 2 && resolve(messages);
    })`);
    const [handshake, message] = echo as [string, string];
    assert.equal(message, 'from the page');
    await page.evaluate(`fetch('/cookies')`);
    const dumped = String(
      await page.evaluate(`fetch('/dump', { method: 'POST', body: 'x' }).then((answer) => answer.text())`),
    );
    assert.match(dumped, /"(?:cookie|Cookie)","a=1; b=2; c=\\"3, 4\\""/u);
    const { cookie } = await visit((await createPreview(PORT)).url);
    const [name = '', value = ''] = cookie.split('=');
    const own = await ask(`${page.url()}dump`, { cookie: `x=1; ${cookie}; y=2` });
    assert.match(own.text, /"cookie","x=1; y=2"/u);
    for (const seen of [handshake, dumped, own.text])
      assert.ok(!seen.includes(name) && !seen.includes(value.slice(0, 20)), seen);
    await page.close();
  });

  test('a page of another origin is refused, whatever it sends', async () => {
    const { origin, cookie } = await visit((await createPreview(PORT)).url);
    const { port } = new URL(origin);
    const other = `http://${PORT}-run${'0'.repeat(20)}.localhost:${port}`;
    for (const from of ['http://evil.test', 'null', other, `http://localhost:${port}`]) {
      const answer = await ask(`${origin}/dump`, { cookie, origin: from }, 'POST');
      assert.deepEqual([answer.status, codeOf(answer)], [403, 'forbidden_origin'], from);
      const upgrade = { path: '/socket', headers: { host: new URL(origin).host, cookie, origin: from } };
      await assert.rejects(openUpgrade(shared.service.address, upgrade, 'websocket'), /answered 403/u);
    }
    for (const from of [origin, origin.replace(`${PORT}-`, `${VITE_PORT}-`)])
      assert.equal((await ask(`${origin}/dump`, { cookie, origin: from }, 'POST')).status, 200, from);

    const server = createServer((_request, response) =>
      response.end('<!doctype html><title>Elsewhere</title>'),
    );
    resources.defer(() => void server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const elsewhere = await browser.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const asked = `fetch('${origin}/dump', { credentials: 'include' }).then(() => 'answered', () => 'blocked')`;
    assert.equal(await elsewhere.evaluate(asked), 'blocked');
    const connected = `new Promise((resolve) => {
      const socket = new WebSocket('${origin.replace('http', 'ws')}/socket');
      socket.onopen = () => resolve('open');
      socket.onerror = () => resolve('blocked');
    })`;
    assert.equal(await elsewhere.evaluate(connected), 'blocked');
    await elsewhere.close();
  });

  test('a page of another origin can use the service with a key, and can do nothing with a cookie', async () => {
    const site = resources.use(await startClientSite());
    const page = await browser.open(site.url);
    const { address } = shared.service;
    const use = `(async () => {
      const { Coppice } = await import('/client/index.ts');
      const apiKey = ${JSON.stringify(API_KEY)};
      const client = new Coppice({ apiKey, baseUrl: ${JSON.stringify(address)} });
      const sandbox = await client.sandboxes.get('${id}');
      const { stdout } = await sandbox.exec('echo from a page');
      await sandbox.upload('/tmp/from-page', 'content');
      const streamed = [];
      for await (const { data } of sandbox.stream('cat /tmp/from-page')) streamed.push(data);
      const shell = await sandbox.shell();
      const shown = await shell.run('echo in a shell');
      await shell.close();
      const absent = await client.sandboxes.get('run00000000000000000000');
      const error = await sandbox.exec('').catch(({ code, requestId }) => [code, typeof requestId]);
      const headers = { authorization: 'Bearer ' + apiKey, 'x-mine': '1' };
      const port = await fetch(sandbox.url(${PORT}, '/dump'), { method: 'PUT', body: 'x', headers });
      return [stdout, streamed[0], shown.stdout, absent, error, port.status, (await port.text()).includes('x-mine')];
    })()`;
    assert.deepEqual(await page.evaluate(use), [
      'from a page\n',
      'content',
      'in a shell\n',
      null,
      ['invalid_request', 'string'],
      200,
      true,
    ]);
    const blocked = (path: string, init = '{}'): Promise<unknown> =>
      page.evaluate(`fetch('${address}${path}', ${init}).then(() => 'answered', () => 'blocked')`);
    assert.equal(await blocked('/account/me'), 'blocked');
    assert.equal(await blocked('/account/me', `{ credentials: 'include' }`), 'blocked');
    assert.equal(await blocked('/v1/runs', `{ credentials: 'include' }`), 'blocked');
    assert.equal(await blocked('/v1/runs'), 'answered');
    await page.close();
  });

  test('an origin shows nothing without its cookie, neither with the API key nor with the link of another port', async () => {
    const preview = await createPreview(PORT);
    const { origin, cookie } = await visit(preview.url);
    const viteOrigin = origin.replace(`${PORT}-`, `${VITE_PORT}-`);
    for (const headers of [{}, BEARER, { cookie: `${cookie}x` }, { cookie: cookie.slice(0, -4) }])
      for (const path of ['/dump', '/v1/runs', '/healthz', '/docs'])
        assert.equal((await ask(origin + path, headers)).status, 401, path);
    assert.equal((await ask(`${viteOrigin}/`, { cookie })).status, 401);
    assert.equal((await ask(preview.url.replace(origin, viteOrigin))).status, 401);
    assert.equal((await ask(`${preview.url}x`)).status, 401);
    assert.equal((await ask(`${origin}/v1/runs`, { cookie })).status, 200);
  });

  test('the documentation is under the origin of the service, and under that of a port are only its own pages', async () => {
    const { origin, cookie } = await visit((await createPreview(PORT)).url);
    const guests = await ask(`${origin}/docs`, { cookie });
    assert.deepEqual([guests.status, guests.headers['content-security-policy']], [200, undefined]);
    const own = await ask(`${shared.service.address}/docs/guides/files`);
    assert.deepEqual([own.status, own.headers['content-type']], [200, 'text/html; charset=utf-8']);
    assert.match(String(own.headers['content-security-policy']), /default-src 'none'/u);
    assert.match(own.text, /<h1[^>]*>Files of a sandbox/u);
  });

  test('a revoked link shows nothing from the next request on, and is no longer listed', async () => {
    const kept = await createPreview(PORT);
    const revoked = await createPreview(PORT);
    const { origin, cookie } = await visit(kept.url);
    const page = await browser.open(revoked.url);
    const path = `/v1/runs/${id}/previews`;
    const listed = async () => (await shared.api.call('GET', path)).body as unknown as Preview[];
    const { url: _, ...record } = revoked;
    assert.deepEqual(
      (await listed()).filter((each) => each.id === revoked.id),
      [record],
    );
    assert.equal((await shared.api.call('DELETE', `${path}/${revoked.id}`)).status, 204);
    assert.equal(await page.evaluate(`fetch('/dump').then(({ status }) => status)`), 401);
    assert.equal((await page.reload())?.status(), 401);
    assert.equal((await ask(revoked.url)).status, 401);
    assert.deepEqual(
      (await listed()).filter((each) => each.id === revoked.id),
      [],
    );
    assert.equal((await shared.api.call('DELETE', `${path}/${revoked.id}`)).status, 404);
    assert.equal((await ask(`${origin}/dump`, { cookie })).status, 200);
    await page.close();
  });
});
