import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import pino from 'pino';
import { TRUSTED_PEER } from '../../lib/process/trusted-peer.ts';
import { RunnerConnection, type RunnerRequest } from './runner-connection.ts';

const EXCHANGES = 2_000;
const REQUEST: RunnerRequest = {
  method: 'POST',
  path: '/',
  body: 'written by the caller',
  headDeadlineMs: 60_000,
};

test('however often both ends abandon a stream at once, the connection and its other streams survive', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'cop-connection-'));
  const socketPath = join(directory, 'runner.sock');
  const server = http2.createServer(TRUSTED_PEER);
  let sessions = 0;
  server.on('session', (session) => {
    sessions += 1;
    session.on('error', () => undefined);
  });
  let isKept = true;
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    stream.respond({ ':status': 200 });
    if (!isKept) stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    isKept = false;
  });
  server.listen(socketPath);
  await once(server, 'listening');
  const connection = new RunnerConnection({ kind: 'socket', path: socketPath }, pino({ level: 'silent' }));
  try {
    const { stream: kept } = await connection.request(REQUEST);
    for (let count = 0; count < EXCHANGES; count += 1) {
      const { stream } = await connection.request(REQUEST);
      stream.destroy(new Error('the tenant left'));
    }
    assert.deepEqual([sessions, kept.closed], [1, false]);
  } finally {
    connection[Symbol.dispose]();
    server.close();
    await rm(directory, { recursive: true });
  }
});
