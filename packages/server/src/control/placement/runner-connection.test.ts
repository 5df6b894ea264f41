import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import http2, { type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ERRORS, type AppError } from '@coppice/contract';
import pino from 'pino';
import { z } from 'zod';
import { get, send, RunnerConnection } from './runner-connection.ts';

const DEADLINE_MS = 100;
const directory = mkdtempSync(join(tmpdir(), 'coppice-runner-'));
after(() => rmSync(directory, { recursive: true }));

/** Starts a runner that accepts each request and then calls `act`. */
async function startRunner(
  name: string,
  act: (stream: ServerHttp2Stream) => void,
): Promise<AsyncDisposable & { connection: RunnerConnection }> {
  const sessions = new Set<ServerHttp2Session>();
  const server = http2.createServer();
  server.on('session', (session) => {
    sessions.add(session);
    session.on('error', () => undefined);
  });
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    act(stream);
  });
  const socketPath = join(directory, name);
  server.listen(socketPath);
  await once(server, 'listening');
  const connection = new RunnerConnection({ kind: 'socket', path: socketPath }, pino({ level: 'silent' }));
  return {
    connection,
    [Symbol.asyncDispose]: async () => {
      connection[Symbol.dispose]();
      for (const session of sessions) session.destroy();
      const closed = once(server, 'close');
      server.close();
      await closed;
    },
  };
}

/** Returns the error codes of a read, a change, and a change that may be repeated. */
async function findCodes(connection: RunnerConnection): Promise<string[]> {
  const change = send('POST', '/vms/run1/rollback', {}, DEADLINE_MS);
  const requests = [
    { ...get('/vms'), headDeadlineMs: DEADLINE_MS },
    change,
    { ...change, isRepeatable: true },
  ];
  const answers = requests.map(async (request) =>
    connection.callJson(request, z.unknown()).then(
      () => 'answered',
      (error: AppError) => error.code,
    ),
  );
  return Promise.all(answers);
}

const UNHEARD = ['unavailable', 'outcome_unknown', 'unavailable'];

test('an absent runner has received nothing: everything may be tried again', async () => {
  using connection = new RunnerConnection(
    { kind: 'socket', path: join(directory, 'nobody') },
    pino({ level: 'silent' }),
  );
  assert.deepEqual(await findCodes(connection), ['unavailable', 'unavailable', 'unavailable']);
});

test('a change that the runner accepted and did not answer in time may have been made', async () => {
  await using runner = await startRunner('silent', () => undefined);
  assert.deepEqual(await findCodes(runner.connection), UNHEARD);
});

test('a change under way when the connection broke may have been made', async () => {
  await using runner = await startRunner('breaking', (stream) => stream.session?.destroy());
  assert.deepEqual(await findCodes(runner.connection), UNHEARD);
});

test('a change whose answer is cut off may have been made, whatever its status line said', async () => {
  await using runner = await startRunner('cutting', (stream) => {
    stream.respond({ ':status': 200 });
    stream.write('{"id":', () => stream.session?.destroy());
  });
  assert.deepEqual(await findCodes(runner.connection), UNHEARD);
});

test('a request on a stream that the runner refused was not carried out', async () => {
  const { NGHTTP2_REFUSED_STREAM } = http2.constants;
  await using runner = await startRunner('refusing', (stream) => stream.close(NGHTTP2_REFUSED_STREAM));
  assert.deepEqual(await findCodes(runner.connection), ['unavailable', 'unavailable', 'unavailable']);
});

test('the error for a guest that does not answer leaves open whether the request was carried out', async () => {
  await using runner = await startRunner('guest', () => undefined);
  const request = send('POST', '/vms/run1/agent/exec', {}, DEADLINE_MS);
  await assert.rejects(runner.connection.request(request), (error: AppError) => {
    assert.equal(error.code, 'guest_unreachable');
    assert.match(error.message, /whether the request was carried out is not known/u);
    return true;
  });
});

test('an unknown outcome is never retryable', () => {
  assert.equal(ERRORS.outcome_unknown.retryable, false);
});
