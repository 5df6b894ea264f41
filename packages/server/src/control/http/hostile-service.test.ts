/** Services in a guest that write whatever they like: the client gets an answer or a broken one, and control serves on. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as sendRequest, type IncomingMessage } from 'node:http';
import { createServer, type AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { API_KEY, startHarness, type ControlHarness } from '../testing/control-harness.ts';

const PORT = 6666;
const DEADLINE_MS = 10_000;
let harness: ControlHarness;
let id = '';
let script = Buffer.alloc(0);
const service = createServer((socket) => {
  socket.on('error', () => undefined);
  socket.once('data', () => socket.end(script));
});

before(async () => {
  harness = await startHarness();
  ({ id } = await harness.create());
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  harness.runner.ports.set(PORT, (service.address() as AddressInfo).port);
});
after(async () => {
  service.close();
  await harness[Symbol.asyncDispose]();
});

/** Settles when the answer has come, whole or not; rejects when none has in time. */
async function ask(headers: Record<string, string>): Promise<void> {
  const { hostname, port } = new URL(harness.control?.address ?? '');
  const sent = sendRequest({
    hostname,
    port,
    path: `/v1/runs/${id}/proxy/${PORT}/`,
    headers: { authorization: `Bearer ${API_KEY}`, ...headers },
    signal: AbortSignal.timeout(DEADLINE_MS),
  });
  sent.end();
  const ended = Promise.withResolvers<void>();
  sent.on('error', (error) => (error.name === 'AbortError' ? ended.reject(error) : ended.resolve()));
  sent.on('upgrade', (_answer, socket) => {
    socket.on('error', () => undefined).resume();
    socket.once('close', () => ended.resolve());
  });
  sent.on('response', (answer: IncomingMessage) => {
    answer.on('error', () => undefined).resume();
    answer.once('close', () => ended.resolve());
  });
  await ended.promise;
}

const PIECES = [
  'HTTP/1.1 200 OK\r\n',
  'HTTP/1.1 103 Early Hints\r\n',
  'HTTP/1.1 101 Switching Protocols\r\n',
  'HTTP/1.1 999 \r\n',
  'HTTP/1.0 200\r\n',
  'HTTP/1.1 204 No\r\n',
  'HTTP/1.1 304 No\r\n',
  'HTTP/9.9 200 OK\r\n',
  'HTTP/1.1 000 ?\r\n',
  'Content-Length: 5\r\n',
  'Content-Length: -1\r\n',
  'Content-Length: 99999999999999999999\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'Trailer: X\r\n',
  'Connection: upgrade\r\n',
  'Upgrade: websocket\r\n',
  'Connection: close, X-Y\r\n',
  'Keep-Alive: timeout=1\r\n',
  'Link: <a>; rel=x\r\n',
  'Link: ;;\r\n',
  'Set-Cookie: coppice_x=1\r\n',
  'Set-Cookie: =;Domain=a\r\n',
  ': empty\r\n',
  'X: \u0080\u00ff\r\n',
  'X: \0\r\n',
  'X:\ty\r\n',
  ' folded\r\n',
  `X: ${'y'.repeat(70_000)}\r\n`,
  '\r\n',
  '\r\n',
  '5\r\nhello\r\n',
  '0\r\n',
  '0\r\nX: y\r\n\r\n',
  'ffffffffff\r\n',
  '\n\n',
  'hello',
];

test('no answer of a guest, however broken, ends control or leaves its client without an end', async () => {
  const answer = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.array(fc.constantFrom(...PIECES), { maxLength: 12 }).map((parts) => parts.join('')),
    },
    { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 200 }) },
  );
  const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
  await fc.assert(
    fc.asyncProperty(answer, fc.boolean(), async (text, asksForUpgrade) => {
      script = Buffer.from(text, 'latin1');
      await ask(asksForUpgrade ? { ...upgrade, 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' } : {});
    }),
    { numRuns: 300 },
  );
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).status, 200);
});
