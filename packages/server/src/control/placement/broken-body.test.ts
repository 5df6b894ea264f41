import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { RunnerConnection } from './runner-connection.ts';

const DEADLINE_MS = 20_000;

/** A connection to a runner that never answers. */
async function connectToSilence(undo: AsyncDisposableStack): Promise<RunnerConnection> {
  const directory = await mkdtemp(join(tmpdir(), 'runner-'));
  undo.defer(() => rm(directory, { recursive: true, force: true }));
  const server = http2.createServer((request) => request.resume());
  server.listen(join(directory, 'socket'));
  await once(server, 'listening');
  undo.defer(() => void server.close());
  return undo.use(
    new RunnerConnection({ kind: 'socket', path: join(directory, 'socket') }, pino({ level: 'silent' })),
  );
}

function upload(connection: RunnerConnection, body: Readable) {
  return connection.request({ method: 'PUT', path: '/vms/x/agent/files', body, headDeadlineMs: DEADLINE_MS });
}

test(
  'a body that broke before it was sent ends the request at once',
  { timeout: DEADLINE_MS / 2 },
  async () => {
    await using undo = new AsyncDisposableStack();
    const connection = await connectToSilence(undo);
    const body = Readable.from(['never read']);
    body.destroy();
    await assert.rejects(upload(connection, body), AppError);
  },
);

test('a request fails with the error that its body broke with', { timeout: DEADLINE_MS / 2 }, async () => {
  await using undo = new AsyncDisposableStack();
  const connection = await connectToSilence(undo);
  const reason = new AppError('invalid_request', 'body: has more than one part');
  for (const isBefore of [true, false]) {
    const body = new Readable({ read: () => undefined });
    body.on('error', () => undefined);
    if (isBefore) body.destroy(reason);
    const answer = upload(connection, body);
    setImmediate(() => body.destroy(reason));
    await assert.rejects(answer, reason);
  }
});
