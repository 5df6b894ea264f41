import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once, type EventEmitter } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { WillingSocket } from './willing-socket.ts';

const MIB = 1024 * 1024;
const BODY_MIB = 16;
const EACH_WAY = 4;
/** More than a socket buffers. */
const WINDOW_BYTES = MIB;
const TIMEOUT_MS = 60_000;

function* body(): Generator<Buffer> {
  const part = Buffer.alloc(64 * 1024, 'x');
  for (let sent = 0; sent < BODY_MIB * MIB; sent += part.length) yield part;
}

async function count(stream: Readable): Promise<number> {
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) bytes += chunk.length;
  return bytes;
}

interface Site extends AsyncDisposable {
  client: http2.ClientHttp2Session;
  /** Sockets of the server's side. */
  sockets: WillingSocket[];
}

/** Starts a server that answers a POST with the number of its bytes, and a GET with the body. */
async function start(): Promise<Site> {
  const resources = new AsyncDisposableStack();
  const server = http2.createServer({ settings: { initialWindowSize: WINDOW_BYTES } });
  server.on('session', (session) => session.setLocalWindowSize(2 ** 30));
  const sockets: WillingSocket[] = [];
  server.on('stream', (stream, headers) => {
    stream.on('error', () => undefined).respond({ ':status': 200 });
    const answering =
      headers[':method'] === 'GET'
        ? pipeline(Readable.from(body()), stream)
        : count(stream).then((bytes) => stream.end(String(bytes)));
    answering.catch(() => undefined);
  });
  const listener = net.createServer((socket) => {
    const willing = new WillingSocket(socket);
    sockets.push(willing);
    server.emit('connection', willing);
  });
  const path = join(tmpdir(), `${randomUUID()}.sock`);
  await once(listener.listen(path), 'listening');
  resources.defer(async () => {
    const closed = once(listener, 'close');
    listener.close();
    await closed;
  });
  const client = http2.connect('http://server', {
    createConnection: () => net.connect(path),
    settings: { initialWindowSize: WINDOW_BYTES },
  });
  client.on('error', () => undefined);
  resources.defer(() => client.destroy());
  await once(client, 'connect');
  client.setLocalWindowSize(2 ** 30);
  return { client, sockets, [Symbol.asyncDispose]: () => resources.disposeAsync() };
}

test('two sessions that send much to each other do not deadlock', async () => {
  await using site = await start();
  const upload = async (): Promise<void> => {
    const stream = site.client.request({ ':method': 'POST' });
    const answer = stream.setEncoding('utf8').toArray();
    await pipeline(Readable.from(body()), stream);
    assert.equal((await answer).join(''), String(BODY_MIB * MIB));
  };
  const download = async (): Promise<void> => {
    assert.equal(await count(site.client.request({ ':method': 'GET' })), BODY_MIB * MIB);
  };
  const all = Array.from({ length: EACH_WAY }, () => [upload(), download()]).flat();
  await withDeadline('all of them', TIMEOUT_MS, Promise.all(all));
});

/** Resolves when the emitter closes. Unlike `once` of node:events it ignores an error before that. */
function closeOf(emitter: EventEmitter): Promise<void> {
  const closed = Promise.withResolvers<void>();
  emitter.once('close', () => closed.resolve());
  return withDeadline('the close', TIMEOUT_MS, closed.promise);
}

test('the end of either side ends the other', async () => {
  await using first = await start();
  const serverEnd = closeOf(first.sockets[0]!);
  first.client.destroy();
  await serverEnd;
  await using second = await start();
  const clientEnd = closeOf(second.client);
  second.sockets[0]!.destroy();
  await clientEnd;
});
