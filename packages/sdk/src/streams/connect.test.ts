import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WebSocket as WsWebSocket } from 'ws';
import { resolveClientOptions } from '../transport/client-options.ts';
import { CoppiceError } from '../transport/errors.ts';
import { parseSandboxInfo } from '../sandbox/sandbox-record.ts';
import { Sandbox } from '../sandbox/sandbox.ts';
import {
  errorBody,
  findRefusingUrl,
  LoopbackServer,
  TEST_KEY,
  wireRecord,
} from '../testing/loopback-server.ts';
import { LoopbackSockets } from '../testing/loopback-sockets.ts';
import { Transport } from '../transport/transport.ts';
import { getWebSocket, type WebSocketConstructor } from './web-socket.ts';

const TICKET = 'secret-ticket';

/**
 * Returns a sandbox whose `fetch` always answers with a ticket. The service at `baseUrl` does not accept that ticket.
 */
function sandboxAt(baseUrl: string, WebSocket?: WebSocketConstructor): Sandbox {
  const fetch = async (): Promise<Response> =>
    Response.json({ ticket: TICKET, expires_at: '2026-11-21T06:31:00.000Z' });
  const transport = new Transport(
    resolveClientOptions({ apiKey: TEST_KEY, baseUrl, fetch, WebSocket, timeoutMs: 2000 }),
  );
  return new Sandbox(transport, parseSandboxInfo(wireRecord()));
}

test('a refused ticket rejects with the service’s error, which a WebSocket would not report', async () => {
  for (const [status, code] of [
    [401, 'unauthorized'],
    [404, 'not_found'],
    [409, 'invalid_state'],
  ] as const) {
    await using server = await LoopbackServer.answering(status, errorBody(code, 'no'));
    await assert.rejects(server.sandbox().spawn('x'), { status, code });
    await assert.rejects(server.sandbox().shell(), { status, code });
    await assert.rejects(server.sandbox().terminal(), { status, code });
    assert.equal(server.seen.length, 3);
  }
});

test('a refused connection has another code than a refused WebSocket', async () => {
  const url = await findRefusingUrl();
  await assert.rejects(sandboxAt(url, WsWebSocket).spawn('x'), { code: 'connection_refused', status: 0 });
  await assert.rejects(sandboxAt(url).spawn('x'), (error) => {
    assert.ok(error instanceof CoppiceError);
    // Not every WebSocket reports why it has no connection.
    assert.match(error.code, /^connection_(refused|failed)$/);
    return true;
  });
  await using service = await LoopbackSockets.start(() => undefined);
  await assert.rejects(sandboxAt(service.url).spawn('x'), { code: 'connection_failed', status: 0 });
});

test('a connection that does not open in time rejects with code timeout', async () => {
  await using server = await LoopbackServer.raw(() => undefined);
  const held: { destroy: () => void }[] = [];
  server.onUpgrade((_, socket) => {
    socket.on('error', () => undefined);
    held.push(socket);
  });
  await assert.rejects(sandboxAt(server.url).spawn('x'), { code: 'timeout' });
  for (const socket of held) socket.destroy();
});

test('the path of the base URL is kept, https becomes wss, and no error includes a ticket', async () => {
  const urls: string[] = [];
  function Refusing(url: string): void {
    urls.push(url);
    throw new SyntaxError(`cannot open ${url}`);
  }
  const WebSocket = Refusing as unknown as WebSocketConstructor;
  await assert.rejects(sandboxAt('https://a.example/b', WebSocket).shell(), (error) => {
    assert.ok(error instanceof CoppiceError);
    assert.equal(error.code, 'connection_failed');
    assert.match(error.message, /cannot open/);
    assert.equal(error.message.includes(TICKET), false);
    return true;
  });
  assert.deepEqual(urls, [`wss://a.example/b/v1/runs/${wireRecord().id}/shell?ticket=${TICKET}`]);
});

test('without a WebSocket class the error names the remedies, and no ticket is requested', async () => {
  const holder = globalThis as { WebSocket?: unknown };
  const saved = Object.getOwnPropertyDescriptor(globalThis, 'WebSocket');
  delete holder.WebSocket;
  try {
    const missing = getWebSocket(undefined, () => Promise.reject(new Error('Cannot find package')));
    await assert.rejects(missing, (error) => {
      assert.ok(error instanceof CoppiceError);
      assert.equal(error.code, 'no_websocket');
      assert.match(error.message, /Node\.js >= 22.*package ws.*\{ WebSocket \}/);
      return true;
    });
    assert.equal(await getWebSocket(undefined), WsWebSocket);
    assert.equal(await getWebSocket(WsWebSocket), WsWebSocket);
  } finally {
    if (saved !== undefined) Object.defineProperty(globalThis, 'WebSocket', saved);
  }
});

test('the option accepts the standard WebSocket and that of the package ws', () => {
  type Standard = typeof globalThis extends { WebSocket: infer Class } ? Class : never;
  const accept = (WebSocket: WebSocketConstructor): WebSocketConstructor => WebSocket;
  const acceptsStandard = (WebSocket: Standard): WebSocketConstructor => accept(WebSocket);
  assert.equal(accept(WsWebSocket), WsWebSocket);
  assert.equal(typeof acceptsStandard, 'function');
});
