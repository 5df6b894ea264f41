import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request as sendRequest, type IncomingMessage } from 'node:http';
import type { Server } from 'node:https';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { measureMemory } from '../../lib/testing/measure-memory.ts';
import { CANARY, grantOf, ProxyFixture, waitFor } from './testing/proxy-fixture.ts';

const OPENAI = 'api.openai.com';
const MIB = 1 << 20;

/** Sends a large body in small pieces. */
async function sendLarge(
  fixture: ProxyFixture,
  sizeMiB: number,
): Promise<{ body: string; sum: string; peak: number }> {
  const request = sendRequest(fixture.url('openai/files'), { method: 'POST', agent: false });
  const hash = createHash('sha256');
  const chunk = randomBytes(MIB);
  const before = await measureMemory();
  let peak = 0;
  for (let index = 0; index < sizeMiB; index += 1) {
    hash.update(chunk);
    if (!request.write(chunk)) await once(request, 'drain');
    if (index % 8 === 0) peak = Math.max(peak, (await measureMemory()) - before);
  }
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const body = (await response.toArray()).join('');
  return { body, sum: hash.digest('hex'), peak };
}

test('an upload of 64 MiB is forwarded without buffering it', async () => {
  await using fixture = await ProxyFixture.start();
  await fixture.network.serve(OPENAI, (request, response) => {
    const hash = createHash('sha256');
    request.on('data', (chunk: Buffer) => hash.update(chunk));
    request.on('end', () => response.end(hash.digest('hex')));
  });
  fixture.guest.grant(grantOf('openai'));
  const { body, sum, peak } = await sendLarge(fixture, 64);
  assert.equal(body, sum);
  assert.ok(peak < 16 * MIB, `${peak} bytes were held at once`);
});

test('a service that does not read makes the sending guest wait', async () => {
  await using fixture = await ProxyFixture.start({ bodyIdleMs: 1_500 });
  await fixture.network.serve(OPENAI, (request) => void request.pause());
  fixture.guest.grant(grantOf('openai'));
  const request = sendRequest(fixture.url('openai/files'), { method: 'POST', agent: false });
  request.on('error', () => undefined);
  const chunk = randomBytes(MIB);
  let taken = 0;
  // The buffers of four sockets accept some data.
  while (taken < 64) {
    const hasRoom =
      request.write(chunk) || (await Promise.race([once(request, 'drain'), stalled()])) !== 'stalled';
    if (!hasRoom) break;
    taken += 1;
  }
  assert.ok(taken < 40, `${taken} MiB were accepted`);
  request.destroy();
  // The end of a connection that is not read is not detected.
  await waitFor('the note', () => fixture.guest.proxied.length === 1);
  assert.deepEqual(fixture.guest.proxied, ['openai POST /v1/files 408']);
});

async function stalled(): Promise<'stalled'> {
  const { promise, resolve } = Promise.withResolvers<'stalled'>();
  setTimeout(() => resolve('stalled'), 1_000);
  return promise;
}

test('a guest that does not read makes the sending service wait', async () => {
  let sent = 0;
  await using fixture = await ProxyFixture.start();
  await fixture.network.serve(OPENAI, (_request, response) => {
    const chunk = randomBytes(MIB);
    const fill = (): void => {
      while (sent < 64 && !response.destroyed) {
        sent += 1;
        if (!response.write(chunk)) {
          response.once('drain', fill);
          return;
        }
      }
    };
    fill();
  });
  fixture.guest.grant(grantOf('openai'));
  const client = await fixture.open();
  client.socket.pause();
  client.write('GET /proxy/openai/files HTTP/1.1\r\nHost: x\r\n\r\n');
  await waitFor('the first bytes', () => sent > 0);
  await stalled();
  assert.ok(sent < 40, `${sent} MiB were sent`);
  client.socket.destroy();
});

test('the answer of a service that has not read the whole body is forwarded', async () => {
  await using fixture = await ProxyFixture.start();
  await fixture.network.serve(OPENAI, (_request, response) => {
    response.writeHead(413, { 'content-type': 'text/plain' }).end('too large');
  });
  fixture.guest.grant(grantOf('openai'));
  const client = await fixture.open();
  client.write(`POST /proxy/openai/files HTTP/1.1\r\nHost: x\r\nContent-Length: ${MIB}\r\n\r\n`);
  await client.until(/ 413 [\s\S]*too large/u);
  client.socket.write(Buffer.alloc(MIB));
  client.write('GET /proxy/anthropic/x HTTP/1.1\r\nHost: x\r\n\r\n');
  await client.until(/ 404 /u);
  client.socket.destroy();
});

/** Starts a service that echoes messages of WebSockets. */
async function startEcho(fixture: ProxyFixture): Promise<{ server: Server; heads: IncomingMessage[] }> {
  const heads: IncomingMessage[] = [];
  const server = await fixture.network.serve(OPENAI, (_request, response) => {
    response.writeHead(401, { 'content-type': 'text/plain' }).end('no upgrade');
  });
  const sockets = new WebSocketServer({ noServer: true });
  server.on('upgrade', (request, socket, head) => {
    heads.push(request);
    if (request.url?.startsWith('/v1/refused') === true) {
      socket.end('HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno');
      return;
    }
    sockets.handleUpgrade(request, socket, head, (webSocket) => {
      webSocket.on('message', (data, isBinary) => webSocket.send(data, { binary: isBinary }));
    });
  });
  return { server, heads };
}

test('a WebSocket carries messages in both directions if the service supports it', async () => {
  await using fixture = await ProxyFixture.start();
  const { heads } = await startEcho(fixture);
  fixture.guest.grant(grantOf('openai'));
  const webSocket = new WebSocket(fixture.url('openai/realtime?model=m').replace('http:', 'ws:'), [
    'realtime',
    'openai-insecure-api-key.sk-coppice-placeholder',
  ]);
  await once(webSocket, 'open');
  const large = randomBytes(MIB);
  webSocket.send(large);
  const [echoed] = (await once(webSocket, 'message')) as [Buffer];
  assert.ok(echoed.equals(large));
  assert.equal(heads[0]?.headers.authorization, `Bearer ${CANARY}`);
  assert.equal(heads[0]?.headers['sec-websocket-protocol'], 'realtime');
  assert.deepEqual(fixture.guest.proxied, ['openai GET /v1/realtime 101']);
  webSocket.close(1000, 'done');
  await once(webSocket, 'close');
});

test('a WebSocket that the service refuses gets the answer of the service', async () => {
  await using fixture = await ProxyFixture.start();
  await startEcho(fixture);
  fixture.guest.grant(grantOf('openai'), grantOf('github'));
  const refused = new WebSocket(fixture.url('openai/refused').replace('http:', 'ws:'));
  const [error] = (await once(refused, 'error')) as [Error];
  assert.match(error.message, /401/u);
  const notTaken = new WebSocket(fixture.url('github/x').replace('http:', 'ws:'));
  const [other] = (await once(notTaken, 'error')) as [Error];
  assert.match(other.message, /400/u);
});

test('a WebSocket ends with its grant and with its guest', async () => {
  await using fixture = await ProxyFixture.start();
  await startEcho(fixture);
  for (const end of [() => fixture.guest.grant(), () => fixture.guest.forget()]) {
    fixture.guest.grant(grantOf('openai'));
    const webSocket = new WebSocket(fixture.url('openai/realtime').replace('http:', 'ws:'));
    await once(webSocket, 'open');
    fixture.guest.grant(grantOf('openai', { secret: 'sk-another-secret' }));
    webSocket.send('still there');
    await once(webSocket, 'message');
    end();
    const [code] = (await once(webSocket, 'close')) as [number];
    assert.equal(code, 1006);
  }
});

test('an idle WebSocket is closed', async () => {
  await using fixture = await ProxyFixture.start({ webSocketIdleMs: 200 });
  await startEcho(fixture);
  fixture.guest.grant(grantOf('openai'));
  const webSocket = new WebSocket(fixture.url('openai/realtime').replace('http:', 'ws:'));
  await once(webSocket, 'open');
  await once(webSocket, 'close');
});
