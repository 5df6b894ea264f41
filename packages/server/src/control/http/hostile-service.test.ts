/** Arbitrary answers of services in a guest: the client gets an answer or a broken one, and control keeps serving. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request as sendRequest, type IncomingMessage } from 'node:http';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { after, before, test } from 'node:test';
import type { CreatedPreview } from '@coppice/contract';
import fc from 'fast-check';
import { Bystander } from '../testing/bystander.ts';
import { API_KEY, startSpawnedHarness } from '../testing/control-harness.ts';
import { hostileAnswer, type HostileAnswer } from '../testing/fakes/hostile-answers.ts';

const PORT = 6666;
const DEADLINE_MS = 10_000;
const RUNS = 300;
const SEED = 6666;
/** A busy machine tries fewer answers. */
const FUZZ_MS = 60_000;
type Harness = Awaited<ReturnType<typeof startSpawnedHarness>>;
let harness: Harness;
let bystander: Bystander;
let id = '';
let answer: HostileAnswer = { pieces: [], isReset: false };
const service = createServer((socket) => {
  socket.on('error', () => undefined);
  socket.once('data', () => void write(socket, answer));
});

async function write(socket: Socket, { pieces, isReset }: HostileAnswer): Promise<void> {
  for (const piece of pieces) {
    socket.write(piece, 'latin1');
    await nextTurn();
  }
  if (isReset) socket.resetAndDestroy();
  else socket.end();
}

before(async () => {
  harness = await startSpawnedHarness();
  ({ id } = await harness.create());
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  harness.runner.ports.set(PORT, (service.address() as AddressInfo).port);
  previewed = await openPreview();
  bystander = await Bystander.open(harness);
});
after(async () => {
  service.close();
  await harness[Symbol.asyncDispose]();
});

/** Path and headers of a request that reaches the service. */
interface Way {
  path: string;
  headers: Record<string, string>;
}

const proxied = (): Way => ({
  path: `/v1/runs/${id}/proxy/${PORT}/`,
  headers: { authorization: `Bearer ${API_KEY}` },
});
let previewed: Way;

async function openPreview(): Promise<Way> {
  const created = await harness.call('POST', `/v1/runs/${id}/ports/${PORT}/preview`, { body: {} });
  const { host, pathname, search } = new URL((created.body as CreatedPreview).url);
  const { hostname, port } = new URL(harness.address);
  const sent = sendRequest({ hostname, port, path: `${pathname}${search}`, headers: { host } });
  sent.end();
  const [opened] = (await once(sent, 'response')) as [IncomingMessage];
  opened.resume();
  const [cookie = ''] = opened.headers['set-cookie'] ?? [];
  return { path: '/', headers: { host, cookie: cookie.split(';', 1)[0] ?? '' } };
}

interface Ask {
  way?: Way;
  agent?: Agent;
  method: string;
  headers: Record<string, string>;
  body?: string;
}

interface Seen {
  status: number;
  phrase: string;
  /** Value of the header field X. */
  x?: string;
}

/** Resolves when the answer has ended, whole or not. Rejects when it does not end in time. */
async function ask({ agent, method, headers, body, way = proxied() }: Ask): Promise<Seen | undefined> {
  const { hostname, port } = new URL(harness.address);
  const sent = sendRequest({
    hostname,
    port,
    method,
    path: way.path,
    headers: { ...way.headers, ...headers },
    signal: AbortSignal.timeout(DEADLINE_MS),
    ...(agent === undefined ? {} : { agent }),
  });
  const ended = Promise.withResolvers<Seen | undefined>();
  sent.on('error', (error) => (error.name === 'AbortError' ? ended.reject(error) : ended.resolve(undefined)));
  const see = ({ statusCode = 0, statusMessage = '', headers: { x } }: IncomingMessage): Seen => ({
    status: statusCode,
    phrase: statusMessage,
    ...(typeof x === 'string' ? { x } : {}),
  });
  sent.on('upgrade', (head, socket) => {
    socket.on('error', () => undefined).resume();
    socket.end(Buffer.from([0x81, 0xff, 0, 0, 1]));
    socket.once('close', () => ended.resolve(see(head)));
  });
  sent.on('response', (head) => {
    head.on('error', () => undefined).resume();
    head.once('close', () => ended.resolve(see(head)));
  });
  sent.end(body);
  return ended.promise;
}

const UPGRADE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
};
const asks = fc.constantFrom<Ask>(
  { method: 'GET', headers: {} },
  { method: 'GET', headers: UPGRADE },
  { method: 'GET', headers: { te: 'trailers', expect: '100-continue' } },
  { method: 'HEAD', headers: {} },
  { method: 'POST', headers: { 'transfer-encoding': 'chunked' }, body: 'hello' },
  { method: 'POST', headers: { ...UPGRADE, upgrade: 'x' }, body: 'hello' },
);

/** Characters that HTTP forbids in a status line. */
// oxlint-disable-next-line no-control-regex -- they are the subject
const FORBIDDEN = /[\0-\x08\x0a-\x1f\x7f]/u;

test('no answer of a guest, however broken, ends control or leaves its client waiting', async () => {
  await fc.assert(
    fc.asyncProperty(hostileAnswer, asks, fc.boolean(), async (hostile, asked, isPreview) => {
      answer = hostile;
      const seen = await ask({ ...asked, way: isPreview ? previewed : proxied() });
      harness.spawned.assertRunning();
      assert.ok(seen === undefined || !FORBIDDEN.test(seen.phrase), 'the phrase has a forbidden character');
    }),
    { numRuns: RUNS, seed: SEED, endOnFailure: true, interruptAfterTimeLimit: FUZZ_MS },
  );
  await bystander.assertUndisturbed();
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).status, 200);
  harness.spawned.assertRunning();
});

for (const [what, phrase] of [
  ['a control character', 'O\u0001K'],
  ['DEL', '\u007f'],
  ['an escape sequence', '\u001b[2J'],
] as const) {
  test(`${what} in a guest's status phrase is not passed on, but its answer is`, async () => {
    for (const [asked, code] of [
      [{ method: 'GET', headers: {} }, 200],
      [{ method: 'GET', headers: UPGRADE }, 101],
    ] as const) {
      const fields = code === 101 ? 'Connection: Upgrade\r\nUpgrade: websocket\r\n' : 'Content-Length: 0\r\n';
      answer = { pieces: [`HTTP/1.1 ${code} ${phrase}\r\n${fields}\r\n`], isReset: false };
      const phrases = { 101: 'Switching Protocols', 200: 'OK' };
      assert.deepEqual(await ask(asked), { status: code, phrase: phrases[code] });
      harness.spawned.assertRunning();
    }
  });
}

test("a guest's own phrase that HTTP allows is passed on, and so is each byte of a field", async () => {
  answer = {
    pieces: ['HTTP/1.1 404 Gone\tFishing caf\u00e9\r\nX: \u0080\u00ff\r\nContent-Length: 0\r\n\r\n'],
    isReset: false,
  };
  const seen = await ask({ method: 'GET', headers: {} });
  assert.deepEqual(seen, { status: 404, phrase: 'Gone\tFishing caf\u00e9', x: '\u0080\u00ff' });
});

test('an answer that announces trailers where none are possible is passed on without them', async () => {
  for (const line of ['304 Not Modified', '204 No Content', '200 OK']) {
    answer = { pieces: [`HTTP/1.1 ${line}\r\nTrailer: X\r\n\r\n`], isReset: false };
    assert.equal((await ask({ method: 'GET', headers: {} }))?.status, Number(line.slice(0, 3)));
  }
});

test('an answer that cannot be passed on is a whole error, and the connection stays usable', async () => {
  const keepAlive = new Agent({ keepAlive: true, maxSockets: 1 });
  for (const head of ['304 Not Modified\r\nX: \u0001', '101 Switching Protocols', '099 Odd']) {
    answer = { pieces: [`HTTP/1.1 ${head}\r\n\r\n`], isReset: false };
    const seen = await ask({ method: 'GET', headers: {}, agent: keepAlive });
    assert.equal(seen?.status, 502, head);
  }
  keepAlive.destroy();
});
