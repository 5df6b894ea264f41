import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2, { type ClientHttp2Stream, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { holdPlace } from './exchange.ts';

class Place implements Disposable {
  isHeld = true;

  [Symbol.dispose](): void {
    this.isHeld = false;
  }
}

/** Sends one request for a reservation. The test decides when the server answers. */
async function ask(t: TestContext): Promise<{ client: ClientHttp2Stream; server: ServerHttp2Stream }> {
  const server = http2.createServer();
  t.after(() => server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const session = http2.connect(`http://127.0.0.1:${port}`);
  t.after(() => session.destroy());
  const asked = once(server, 'stream') as Promise<[ServerHttp2Stream]>;
  const client = session.request({ ':path': '/' });
  client.on('error', () => undefined);
  const [stream] = await asked;
  stream.on('error', () => undefined);
  return { client, server: stream };
}

const untilGivenBack = (place: Place): Promise<true> =>
  pollUntil({ step: 'the release of the reservation', timeoutMs: 5000, intervalMs: 1 }, () =>
    place.isHeld ? undefined : true,
  );

test('a reservation is held until the caller ends the request', async (t) => {
  const { client, server } = await ask(t);
  const place = new Place();
  holdPlace(server, place);
  const [headers] = (await once(client, 'response')) as [http2.IncomingHttpHeaders];
  assert.deepEqual([headers[':status'], place.isHeld], [200, true]);
  client.close(http2.constants.NGHTTP2_CANCEL);
  await untilGivenBack(place);
});

test('a reservation is released when the caller’s connection breaks', async (t) => {
  const { client, server } = await ask(t);
  const place = new Place();
  holdPlace(server, place);
  await once(client, 'response');
  client.session?.destroy();
  await untilGivenBack(place);
});

test('no reservation is held for a caller that left before the answer', async (t) => {
  const { client, server } = await ask(t);
  const closed = once(server, 'close');
  client.close(http2.constants.NGHTTP2_CANCEL);
  await closed;
  const place = new Place();
  holdPlace(server, place);
  assert.equal(place.isHeld, false);
});
