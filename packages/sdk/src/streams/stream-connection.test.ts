import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { SANDBOX_ID } from '../testing/loopback-server.ts';
import { LoopbackSockets, type ServicePeer } from '../testing/loopback-sockets.ts';
import { within } from '../testing/within.ts';
import { Deadline } from '../transport/deadline.ts';
import { StreamConnection } from './stream-connection.ts';

const PING_SILENCE_MS = 300;
const LONG_MS = 60_000;

/** Connects to a service that does what `serve` does. Each text message is an item. */
async function open(service: LoopbackSockets): Promise<StreamConnection<string, never>> {
  const { ticket } = await service.sandbox().createTicket();
  const url = `${service.url.replace('http', 'ws')}/v1/runs/${SANDBOX_ID}/exec/ws?ticket=${encodeURIComponent(ticket)}`;
  const connection = new StreamConnection<string, never>(
    new WebSocket(url),
    {
      parse: (message) => ({ item: String(message) }),
      silenceMs: LONG_MS,
      pingSilenceMs: PING_SILENCE_MS,
      stallMs: LONG_MS,
    },
    { label: 'GET /x', deadline: new Deadline('GET /x', LONG_MS, undefined), redact: (text) => text },
  );
  await connection.opened();
  return connection;
}

/** Pings as the service does, faster. Returns how to stop. */
function startPings({ socket }: ServicePeer): () => void {
  socket.ping();
  const timer = setInterval(() => socket.ping(), PING_SILENCE_MS / 10);
  return () => clearInterval(timer);
}

test('pings keep a silent connection, and it is dead soon after they stop', async () => {
  let stop = (): void => undefined;
  await using service = await LoopbackSockets.start((peer) => void (stop = startPings(peer)));
  const connection = await open(service);
  const ended = connection.final().then(
    () => 'ended',
    (error: { code: string }) => error.code,
  );
  const startedAtMs = performance.now();
  await new Promise((resolve) => setTimeout(resolve, 3 * PING_SILENCE_MS));
  assert.equal(connection.hasEnded, false);
  stop();
  assert.equal(await within(LONG_MS / 2, ended, 'the connection does not end'), 'timeout');
  assert.ok(performance.now() - startedAtMs > 3 * PING_SILENCE_MS);
});

test('a connection that is paused by a slow reader is not dead, however long it shows no ping', async () => {
  // Some of them are in the socket already when it is paused.
  const block = 'x'.repeat(1000);
  const sent = 4000;
  let stop = (): void => undefined;
  await using service = await LoopbackSockets.start((peer) => {
    stop = startPings(peer);
    for (let count = 0; count < sent; count += 1) peer.socket.send(block);
  });
  const connection = await open(service);
  const items = connection.items();
  await items.next();
  await new Promise((resolve) => setTimeout(resolve, 3 * PING_SILENCE_MS));
  for (let count = 1; count < sent; count += 1) assert.equal((await items.next()).value, block);
  assert.equal(connection.hasEnded, false);
  stop();
  await connection.close('closed');
});

test('without a ping only the limit of the command counts', async () => {
  await using service = await LoopbackSockets.start(() => undefined);
  const connection = await open(service);
  await new Promise((resolve) => setTimeout(resolve, 2 * PING_SILENCE_MS));
  assert.equal(connection.hasEnded, false);
  await connection.close('closed');
});
