import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { METHODS } from 'node:http';
import { PassThrough } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil, withDeadline } from '../../packages/server/src/lib/waiting/deadline.ts';
import { BEARER, startPortServer, type GuestPort } from '../fixtures/ports/guest-port.ts';
import { call } from '../fixtures/api/http-call.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';

interface Seen {
  method: string;
  url: string;
  rawHeaders: string[];
  rawTrailers: string[];
  size: number;
  sha256: string;
}

const TIMEOUT_MS = 30_000;
const PORT = 3000;
/** CONNECT requests a tunnel from a proxy, and this proxy opens none. */
const FORWARDED = METHODS.filter((method) => method !== 'CONNECT');

describe('ports of a sandbox', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let id = '';
  let port: GuestPort;
  before(async () => {
    shared = await openShared();
    ({ id } = await shared.api.create({ image: BASE_IMAGE, mem_mib: 512 }));
    port = await startPortServer(shared.api, id, PORT);
  });
  after(() => shared.api.destroy(id));

  const see = async (path: string, headers: Record<string, string> = {}): Promise<Seen> => {
    const answer = await port.call({ path, headers });
    assert.equal(answer.status, 200, answer.text);
    return JSON.parse(answer.text) as Seen;
  };
  const hanging = async (): Promise<{ begun: number; left: number }> =>
    JSON.parse(await port.get('/hanging')) as { begun: number; left: number };
  const waitForLeft = async (count: number): Promise<void> => {
    await pollUntil({ step: 'the end in the guest', timeoutMs: TIMEOUT_MS, intervalMs: 50 }, async () =>
      (await hanging()).left >= count ? true : undefined,
    );
  };
  const codeOf = (text: string): string => (JSON.parse(text) as { error: { code: string } }).error.code;

  test('every method arrives with its body, and HEAD is answered without one', async () => {
    const body = 'PATCH and others carry one';
    for (const method of FORWARDED) {
      const isBare = ['GET', 'HEAD', 'TRACE'].includes(method);
      const answer = await port.call({ method, path: '/dump', ...(isBare ? {} : { body }) });
      assert.deepEqual([answer.status, answer.headers['x-seen-method']], [200, method], answer.text);
      if (method === 'HEAD') assert.equal(answer.text, '');
      else assert.equal((JSON.parse(answer.text) as Seen).size, isBare ? 0 : body.length, method);
    }
  });

  test('path and query arrive byte for byte', async () => {
    const paths = [
      '/a%2Fb/../c//d;x=1?q=%zz&%20+',
      '//other.test/x',
      '/%zz/%',
      "/!$&'()*+,;=:@-._~[]|^{}",
      '/?',
      '/??a=b?c#d',
      `/${'long/'.repeat(1000)}`,
    ];
    for (const path of paths) assert.equal((await see(path)).url, path);
    const wire = { path: port.base, headers: BEARER };
    const bare = await call(shared.service.address, wire);
    assert.equal((JSON.parse(bare.text) as Seen).url, '/', bare.text);
    const query = await call(shared.service.address, { ...wire, path: `${port.base}?a=1` });
    assert.equal((JSON.parse(query.text) as Seen).url, '/?a=1', query.text);
  });

  test("the guest sees the client's address, ignores forged ones, and never sees the key", async () => {
    const { rawHeaders } = await see(`/headers?of=all`, {
      'X-Forwarded-For': '6.6.6.6',
      'X-Real-IP': '6.6.6.6',
      'X-Forwarded-Host': 'other.test',
      'X-Forwarded-Proto': 'gopher',
      'X-Own': 'kept',
      Cookie: 'a=1; b="2"',
    });
    const sent: Record<string, string> = {};
    for (let index = 0; index < rawHeaders.length; index += 2) {
      const name = rawHeaders[index]!.toLowerCase();
      assert.ok(!(name in sent), `${name} was sent twice: ${rawHeaders.join(' ')}`);
      sent[name] = rawHeaders[index + 1]!;
    }
    assert.equal(sent['host'], `localhost:${PORT}`);
    assert.equal(sent['x-forwarded-host'], new URL(shared.service.address).host);
    assert.equal(sent['x-forwarded-proto'], 'https');
    assert.equal(sent['x-real-ip'], '127.0.0.1');
    assert.equal(sent['x-forwarded-for'], '127.0.0.1');
    assert.deepEqual([sent['x-own'], sent['cookie']], ['kept', 'a=1; b="2"']);
    assert.equal(sent['authorization'], undefined);
    assert.ok(!rawHeaders.join('\n').includes(API_KEY));
  });

  test('each event arrives when it is written, also with curl', async () => {
    const curl = spawn('curl', ['-sN', '-H', `authorization: Bearer ${API_KEY}`, `${port.url}/events`]);
    let seen = '';
    curl.stdout.setEncoding('utf8').on('data', (text: string) => (seen += text));
    const closed = once(curl, 'close');
    for (const count of [1, 2, 3]) {
      await pollUntil({ step: `event ${count}`, timeoutMs: TIMEOUT_MS, intervalMs: 10 }, () =>
        seen.includes(`data: ${count}\n\n`) ? true : undefined,
      );
      assert.ok(!seen.includes(`data: ${count + 1}`));
      await port.get('/step');
    }
    assert.deepEqual(await withDeadline('the end of curl', TIMEOUT_MS, closed), [0, null]);
  });

  test('chunks pass in both directions as they are written, followed by trailers', async () => {
    const body = new PassThrough();
    body.write('first');
    const response = await port.open({ method: 'POST', path: '/echo', body });
    const chunks = response.setEncoding('utf8')[Symbol.asyncIterator]();
    const next = async () => (await withDeadline('an echo', TIMEOUT_MS, chunks.next())).value as unknown;
    assert.equal(await next(), 'first');
    body.write('second');
    assert.equal(await next(), 'second');
    body.end();
    assert.equal(await next(), undefined);
    const upload = new PassThrough();
    upload.end('with a trailer');
    const headers = { trailer: 'x-sum' };
    const dumped = await port.call({
      method: 'PUT',
      path: '/dump',
      headers,
      body: upload,
      trailers: { 'x-sum': '7' },
    });
    const { rawTrailers, sha256 } = JSON.parse(dumped.text) as Seen;
    assert.equal(sha256, createHash('sha256').update('with a trailer').digest('hex'));
    assert.deepEqual(rawTrailers.map(String), ['x-sum', '7']);
    assert.deepEqual((await port.call({ path: '/trailers' })).trailers, { 'x-checksum': 'abc' });
  });

  test('cookies pass in both directions, several of them separately', async () => {
    const answer = await port.call({ path: '/cookies', headers: { cookie: 'x=1; y=2' } });
    assert.equal(answer.text, 'x=1; y=2');
    assert.deepEqual(answer.headers['set-cookie'], ['a=1; Path=/; HttpOnly', 'b=2; Max-Age=60', 'c="3, 4"']);
  });

  test('a WebSocket passes end to end: protocol, messages of any size, ping, close code', async () => {
    const before = await hanging();
    const socket = port.openSocket('/socket?room=%2F1', ['old', 'new']);
    const messages: Buffer[] = [];
    socket.on('message', (data: Buffer) => messages.push(data));
    const closed = once(socket, 'close');
    await withDeadline('the upgrade', TIMEOUT_MS, once(socket, 'open'));
    assert.equal(socket.protocol, 'new');
    assert.match(socket.extensions, /permessage-deflate/u);
    const big = Buffer.alloc(5_000_000, 'big');
    socket.send('text');
    socket.send(big);
    await pollUntil({ step: 'the echoes', timeoutMs: TIMEOUT_MS, intervalMs: 20 }, () =>
      messages.length === 3 ? true : undefined,
    );
    const { url, rawHeaders } = JSON.parse(String(messages[0])) as Seen;
    assert.equal(url, '/socket?room=%2F1');
    assert.ok(!rawHeaders.join('\n').includes(API_KEY));
    assert.ok(rawHeaders.includes(`localhost:${PORT}`));
    assert.equal(String(messages[1]), 'text');
    assert.ok(big.equals(messages[2]!));
    const ponged = once(socket, 'pong');
    socket.ping('are you there');
    assert.equal(String((await withDeadline('a pong', TIMEOUT_MS, ponged))[0]), 'are you there');
    socket.send('close 4001 enough');
    const [code, reason] = await withDeadline('the close', TIMEOUT_MS, closed);
    assert.deepEqual([code, String(reason)], [4001, 'enough']);
    await waitForLeft(before.left + 1);
  });

  test('a disconnect of the client ends its request in the guest', async () => {
    const before = await hanging();
    const response = await port.open({ path: '/hang' });
    await once(response, 'data');
    const socket = port.openSocket('/');
    await withDeadline('the upgrade', TIMEOUT_MS, once(socket, 'open'));
    assert.deepEqual(await hanging(), { begun: before.begun + 2, left: before.left });
    response.destroy();
    await waitForLeft(before.left + 1);
    socket.terminate();
    await waitForLeft(before.left + 2);
  });

  test('servers on any address of the guest are reachable as soon as they listen', async () => {
    const own = await port.get('/address');
    const addresses = ['127.0.0.1', '::1', '0.0.0.0', '::', own];
    for (const [index, host] of addresses.entries()) {
      const { base } = port;
      const at = 3101 + index;
      await port.get(`/listen?port=${at}&host=${encodeURIComponent(host)}`);
      const path = base.replace(/\d+$/u, String(at));
      const answer = await call(shared.service.address, { path: `${path}/`, headers: BEARER });
      assert.deepEqual([answer.status, answer.text], [200, host]);
    }
  });

  test('no server, or one that dies before it answers, gives 502; one that dies later breaks the transfer', async () => {
    const { address } = shared.service;
    const absent = await call(address, { path: port.base.replace(/\d+$/u, '1/'), headers: BEARER });
    assert.deepEqual([absent.status, codeOf(absent.text)], [502, 'port_unreachable']);
    const died = await port.call({ path: '/die' });
    assert.deepEqual([died.status, codeOf(died.text)], [502, 'port_unreachable']);
    for (const kind of ['sized', 'chunked']) {
      const response = await port.open({ path: `/die-midway?${kind}` });
      assert.equal(response.statusCode, 200);
      await assert.rejects(response.toArray(), { code: 'ECONNRESET' }, kind);
    }
  });

  test('without the key nothing is reachable; answers name invalid ports and sandboxes', async () => {
    const { address } = shared.service;
    for (const headers of [{}, { authorization: `Bearer ${API_KEY.slice(0, -1)}x` }] as const) {
      const answer = await call(address, { path: `${port.base}/dump`, headers });
      assert.deepEqual([answer.status, codeOf(answer.text)], [401, 'unauthorized']);
    }
    const at = (sandbox: string, number: string) => `/v1/runs/${sandbox}/proxy/${number}/`;
    for (const number of ['0', '65536', 'abc', '-1', '1e3']) {
      const answer = await call(address, { path: at(id, number), headers: BEARER });
      assert.deepEqual([answer.status, codeOf(answer.text)], [400, 'invalid_request'], number);
    }
    const unknown = await call(address, { path: at(`run${'0'.repeat(20)}`, '80'), headers: BEARER });
    assert.deepEqual([unknown.status, codeOf(unknown.text)], [404, 'not_found']);
  });
});
