/** Tests the one connection of control for all sandboxes of the machine, whatever tenants and guests do. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import http2, { type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import pino from 'pino';
import { EPOCH_HEADER } from '../../lib/protocol/wire-headers.ts';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { Fence } from './fence.ts';
import { RunnerServer, type RunnerServerParts } from './runner-server.ts';

const DEADLINE_MS = 60_000;
/** Larger than a stream's window: the rest waits in the runner. */
const LARGE = { text: 'x'.repeat(200_000) };

let directory = '';
let server: RunnerServer;
let session: ClientHttp2Session;
let status: object = {};
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cop-runner-'));
  const socketPath = join(directory, 'runner.sock');
  const parts = { status: () => status, fence: new Fence(directory), log: pino({ level: 'silent' }) };
  server = await RunnerServer.listen(parts as unknown as RunnerServerParts, { socketPath });
  session = http2.connect('http://runner', { createConnection: () => connect(socketPath) });
  session.on('error', () => undefined);
});
after(async () => {
  session.destroy();
  await server.close();
  await rm(directory, { recursive: true });
});

function open(method: string, path: string): ClientHttp2Stream {
  const stream = session.request({ ':method': method, ':path': path }, { endStream: method === 'GET' });
  return stream.on('error', () => undefined);
}

/** Returns the status of the answer, or undefined if the stream is refused. */
async function readStatus(stream: ClientHttp2Stream): Promise<unknown> {
  const answered = Promise.withResolvers<unknown>();
  stream.once('response', (headers) => answered.resolve(headers[':status']));
  stream.once('close', () => answered.resolve(undefined));
  return withDeadline('an answer', DEADLINE_MS, answered.promise, () => stream.destroy());
}

async function assertServing(message: string): Promise<void> {
  const stream = open('GET', '/status');
  stream.resume();
  assert.equal(await readStatus(stream), 200, message);
}

test('the connection survives any number of abandoned streams', async () => {
  for (let round = 1; round <= 10; round += 1) {
    const streams = Array.from({ length: 500 }, () => open('POST', '/images/prepare'));
    for (const stream of streams) stream.write('{');
    // Its answer shows that the others have arrived.
    await assertServing('before');
    for (const stream of streams) stream.destroy(new Error('the tenant left'));
    await assertServing(`after ${round * 500} resets`);
  }
});

test('new streams are accepted however much data was waiting on abandoned ones', async () => {
  status = LARGE;
  for (let round = 1; round <= 60; round += 1) {
    const streams = Array.from({ length: 50 }, () => open('GET', '/status'));
    const statuses = await Promise.all(streams.map(readStatus));
    assert.deepEqual(new Set(statuses), new Set([200]), `after ${(round - 1) * 50} resets`);
    for (const stream of streams) stream.destroy(new Error('the tenant left'));
  }
});

test('what a control asked on a connection that it has given up does not begin after a request on its next one', async () => {
  const connectAgain = (): ClientHttp2Session =>
    http2
      .connect('http://runner', { createConnection: () => connect(join(directory, 'runner.sock')) })
      .on('error', () => undefined);
  const ask = (on: ClientHttp2Session, epoch: number): Promise<unknown> => {
    const stream = on.request({ ':path': '/unknown', [EPOCH_HEADER]: String(epoch) });
    return readStatus(stream.on('error', () => undefined).resume());
  };
  const [first, second] = [connectAgain(), connectAgain()];
  try {
    assert.equal(await ask(first, 1), 404);
    assert.equal(await ask(second, 1), 404);
    // It was sent before the connection's end is known here.
    assert.equal(await ask(first, 1).catch(() => undefined), undefined);
    assert.equal(await ask(second, 1), 404);
    const third = connectAgain();
    assert.equal(await ask(third, 2), 404);
    // One of an earlier owner stays, so that it hears of its successor.
    assert.equal(await ask(second, 1), 409);
    third.destroy();
    await assertServing('programs of this machine have no epoch');
  } finally {
    for (const each of [first, second]) each.destroy();
  }
});
