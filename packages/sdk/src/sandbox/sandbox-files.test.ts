import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorBody, LoopbackServer, SANDBOX_ID } from '../testing/loopback-server.ts';

const WIRE = {
  name: 'a',
  path: '/w/a',
  type: 'symlink',
  size: 1,
  mode: '0777',
  mtime: '2026-11-21T06:30:00.000Z',
  target: 'b',
  uid: 1000,
  gid: 7,
  user: 'app',
};
const PATH = `/v1/runs/${SANDBOX_ID}/files`;

test('stat returns the entry with its owner', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  assert.deepEqual(await server.sandbox().files.stat('/w/a b'), { ...WIRE, group: null });
  assert.deepEqual([server.last.method, server.last.url], ['GET', `${PATH}/stat?path=%2Fw%2Fa%20b`]);
});

test('changes send only the fields that were given', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  const { files } = server.sandbox();
  for (const [call, route, body] of [
    [() => files.mkdir('/d'), 'mkdir', { path: '/d' }],
    [
      () => files.mkdir('/d', { mode: 0o50, parents: false, user: 'app' }),
      'mkdir',
      { path: '/d', mode: '050', parents: false, user: 'app' },
    ],
    [() => files.move('/a', '/b'), 'move', { from: '/a', to: '/b' }],
    [() => files.move('/a', '/b', { overwrite: true }), 'move', { from: '/a', to: '/b', overwrite: true }],
    [() => files.chmod('/a', 0o644), 'chmod', { path: '/a', mode: '644' }],
    [
      () => files.chmod('/a', '755', { recursive: true }),
      'chmod',
      { path: '/a', mode: '755', recursive: true },
    ],
    [() => files.chown('/a', '1:2'), 'chown', { path: '/a', user: '1:2' }],
  ] as const) {
    assert.equal((await call()).uid, 1000);
    assert.deepEqual([server.last.method, server.last.url], ['POST', `${PATH}/${route}`]);
    assert.deepEqual(server.lastJson, body);
  }
});

test('a removal has no answer to parse, and is recursive only when asked for', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(204).end();
  });
  const { files } = server.sandbox();
  await files.remove('/a');
  assert.deepEqual([server.last.method, server.last.url], ['DELETE', `${PATH}?path=%2Fa`]);
  await files.remove('/a', { recursive: true });
  assert.equal(server.last.url, `${PATH}?path=%2Fa&recursive=true`);
});

test('an invalid mode is a TypeError before any request', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  const { files } = server.sandbox();
  await assert.rejects(files.chmod('/a', 0o10000), TypeError);
  await assert.rejects(files.mkdir('/a', { mode: -1 }), TypeError);
  assert.equal(server.seen.length, 0);
});

test('a move is not repeated: the first attempt may have moved the file', async () => {
  await using server = await LoopbackServer.answering(503, errorBody('unavailable', 'try again'), {
    'retry-after': '0',
  });
  await assert.rejects(server.sandbox({ maxRetries: 3 }).files.move('/a', '/b'), { code: 'unavailable' });
  assert.equal(server.seen.length, 1);
});

test('an archive is sent and read byte for byte, with its format', async () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 256);
  const result = { path: '/d', entries: 3, size: 9 };
  await using server = await LoopbackServer.start(({ method }, response) => {
    response.end(method === 'GET' ? bytes : JSON.stringify(result));
  });
  const { files } = server.sandbox();
  assert.deepEqual(await files.uploadArchive('/d', bytes, { format: 'tar.gz', user: 'app' }), result);
  assert.deepEqual(
    [server.last.method, server.last.url],
    ['PUT', `${PATH}/archive?path=%2Fd&format=tar.gz&user=app`],
  );
  assert.deepEqual(new Uint8Array(server.last.body), bytes);
  const stream = await files.downloadArchive('/d');
  assert.deepEqual(new Uint8Array(await new Response(stream).arrayBuffer()), bytes);
  assert.deepEqual([server.last.method, server.last.url], ['GET', `${PATH}/archive?path=%2Fd`]);
});

test('an archive that is cut off fails the stream', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200);
    response.write('begin', () => response.destroy());
  });
  const stream = await server.sandbox().files.downloadArchive('/d');
  await assert.rejects(new Response(stream).arrayBuffer(), { code: 'connection_failed' });
});

test('a link is for a download unless an upload is asked for', async () => {
  const wire = { url: 'http://h/files/x.y', expires_at: '2026-11-21T06:30:00.000Z' };
  await using server = await LoopbackServer.answering(201, wire);
  const { files } = server.sandbox();
  assert.deepEqual(await files.createLink('/a'), { url: wire.url, expiresAt: wire.expires_at });
  assert.deepEqual(server.lastJson, { path: '/a', method: 'download' });
  await files.createLink('/a', { method: 'upload', expiresIn: 5 });
  assert.deepEqual(server.lastJson, { path: '/a', method: 'upload', expires_in: 5 });
  assert.equal(server.last.url, `${PATH}/links`);
  await assert.rejects(files.createLink('/a', { expires: 5 } as object), TypeError);
});

/** Starts a service whose watches send these events and then end. */
async function startWatched(...events: object[]): Promise<LoopbackServer> {
  return LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`:\n\n${events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')}`);
  });
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

test('a watch yields changes up to the end of the directory', async () => {
  await using server = await startWatched(
    { type: 'created', path: '/w/a', directory: true },
    { type: 'of a later version' },
    { type: 'renamed', path: '/w/b', from: '/w/a', directory: false },
    { type: 'lost' },
    { type: 'ended', path: '/w' },
  );
  const events = await collect(await server.sandbox().files.watch('/w', { recursive: true }));
  assert.deepEqual(events, [
    { type: 'created', path: '/w/a', directory: true },
    { type: 'renamed', path: '/w/b', from: '/w/a', directory: false },
    { type: 'lost', path: null },
  ]);
  assert.equal(server.last.url, `${PATH}/watch?path=%2Fw&recursive=true`);
});

test('a watch that ends with an error, or without an end, throws', async () => {
  const error = { code: 'invalid_state', message: 'the sandbox is hibernated' };
  await using ended = await startWatched({ type: 'error', data: error.message, error });
  await assert.rejects(collect(await ended.sandbox().files.watch('/w')), { code: 'invalid_state' });
  await using cut = await startWatched({ type: 'created', path: '/w/a', directory: false });
  await assert.rejects(collect(await cut.sandbox().files.watch('/w')), { code: 'connection_failed' });
});

test('leaving the loop closes the connection of the watch', { timeout: 10_000 }, async () => {
  let noteClose: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => (noteClose = resolve));
  await using server = await LoopbackServer.start((_, response) => {
    response.once('close', noteClose);
    response.write('data: {"type":"created","path":"/w/a","directory":false}\n\n');
  });
  for await (const _ of await server.sandbox().files.watch('/w')) break;
  await closed;
});
