import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ClientHttp2Stream } from 'node:http2';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { pollUntil } from '../waiting/deadline.ts';
import { readWhole } from './whole-stream.ts';

const TIMEOUT = { timeout: 10_000 };
/** More than a Transform holds, and less than the window of a stream. */
const LONG_BYTES = 250_000;
const WINDOW_BYTES = 256 << 10;

/** Returns an answer that has arrived as a whole and has not been read, and a function that breaks its connection. */
async function answer(t: TestContext, bytes: number) {
  const server = http2.createServer();
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    stream.respond({ ':status': 200 });
    stream.end(Buffer.alloc(bytes, 'a'));
  });
  const sockets: Socket[] = [];
  const listener = createServer((socket) => {
    sockets.push(socket);
    server.emit('connection', socket);
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address() as AddressInfo;
  const session = http2.connect(`http://127.0.0.1:${port}`, {
    createConnection: () => connect(port, '127.0.0.1'),
    settings: { initialWindowSize: WINDOW_BYTES },
  });
  session.on('error', () => undefined);
  t.after(() => {
    session.destroy();
    listener.close();
  });
  const stream = session.request({ ':path': '/' });
  stream.on('error', () => undefined);
  await once(stream, 'response');
  const lose = async (): Promise<void> => {
    await pollUntil({ step: 'the whole answer', timeoutMs: 5_000, intervalMs: 5 }, () =>
      isComplete(stream) ? true : undefined,
    );
    for (const socket of sockets) socket.destroy();
    await once(session, 'close');
  };
  return { stream, lose };
}

/** The far end has closed a stream of which nothing is to come any more. */
function isComplete(stream: ClientHttp2Stream): boolean {
  return stream.closed;
}

test(
  'an answer that has come is whole, although its connection is lost before it is used',
  TIMEOUT,
  async (t) => {
    const { stream, lose } = await answer(t, 8);
    const read = readWhole(stream, null);
    await lose();
    assert.equal((await buffer(read)).length, 8);
  },
);

test('an answer of which a part was not read fails when its connection is lost', TIMEOUT, async (t) => {
  const { stream, lose } = await answer(t, LONG_BYTES);
  const read = readWhole(stream, null);
  await lose();
  await assert.rejects(buffer(read), /the connection was lost|Premature close/u);
});
