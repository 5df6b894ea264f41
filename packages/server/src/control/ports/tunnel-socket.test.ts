import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ClientHttp2Session, type ClientHttp2Stream, type ServerHttp2Stream } from 'node:http2';
import { connect, type AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { waitFor } from '../testing/control-harness.ts';
import { TunnelSocket } from './tunnel-socket.ts';

let session: ClientHttp2Session;
const server = http2.createServer();
before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  session = http2.connect('http://guest', { createConnection: () => connect(port, '127.0.0.1') });
});
after(() => {
  session.destroy();
  server.close();
});

/** Opens a tunnel and returns both ends. */
async function open(): Promise<{ socket: TunnelSocket; guest: ServerHttp2Stream }> {
  const accepted = once(server, 'stream') as Promise<[ServerHttp2Stream]>;
  const stream: ClientHttp2Stream = session.request({ ':method': 'POST' }, { endStream: false });
  stream.on('error', () => undefined);
  const [guest] = await accepted;
  guest.on('error', () => undefined);
  guest.respond({ ':status': 200 });
  await once(stream, 'response');
  return { socket: new TunnelSocket(stream), guest };
}

test('bytes pass both ways, and each half ends by itself', async () => {
  const { socket, guest } = await open();
  let heard = '';
  let said = '';
  guest.on('data', (chunk: Buffer) => (said += String(chunk)));
  socket.on('data', (chunk: Buffer) => (heard += String(chunk)));
  guest.write('hello');
  guest.end(' and bye');
  await once(socket, 'end');
  assert.equal(heard, 'hello and bye');
  socket.end('still here');
  await once(guest, 'end');
  assert.equal(said, 'still here');
});

test('a reset by the guest is an error of the socket and of nothing else', async () => {
  const { socket, guest } = await open();
  guest.close(http2.constants.NGHTTP2_CANCEL);
  await waitFor('the end', () => socket.destroyed);
  assert.equal((socket.errored as NodeJS.ErrnoException).code, 'ECONNRESET');
  const late = await open();
  late.guest.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
  late.socket.write('too late');
  await waitFor('the end', () => late.socket.destroyed);
});

test('a destroyed socket resets the tunnel, so that no part is taken for the whole', async () => {
  const { socket, guest } = await open();
  socket.write('half of');
  let hasEnded = false;
  guest.on('end', () => (hasEnded = true)).resume();
  socket.destroy();
  await waitFor('the reset', () => guest.closed);
  assert.notEqual(guest.rstCode, 0);
  assert.equal(hasEnded, false);
});

test('a resting socket is closed after its time, and at once when the service writes or ends', async () => {
  const idle = await open();
  idle.socket.rest(30);
  await waitFor('the end of the rest', () => idle.guest.closed);
  for (const stir of [
    (guest: ServerHttp2Stream) => guest.write('HTTP/1.1 200 OK'),
    (guest: ServerHttp2Stream) => guest.end(),
  ]) {
    const { socket, guest } = await open();
    socket.rest(60_000);
    stir(guest);
    await waitFor('the close', () => socket.destroyed);
  }
  const woken = await open();
  woken.socket.rest(60_000);
  woken.socket.wake();
  const data = once(woken.socket, 'data');
  woken.guest.write('answer');
  assert.equal(String((await data)[0]), 'answer');
  woken.socket.destroy();
});

test('a guest that does not read makes the writer wait', async () => {
  const { socket, guest } = await open();
  guest.pause();
  let accepted = 0;
  const chunk = Buffer.alloc(64 << 10);
  while (accepted < 64 << 20 && !socket.writableNeedDrain) {
    socket.write(chunk);
    accepted += chunk.length;
    await new Promise(setImmediate);
  }
  assert.ok(accepted < 8 << 20, `${accepted} bytes were taken`);
  socket.destroy();
});
