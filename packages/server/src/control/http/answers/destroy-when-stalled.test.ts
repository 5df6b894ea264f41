import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { finished } from 'node:stream/promises';
import { test } from 'node:test';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import { destroyWhenStalled } from './destroy-when-stalled.ts';

const STALL_MS = 60_000;
const DEADLINE_MS = 10_000;

test('a connection that is kept alive after an answer is closed when it stays idle', async () => {
  const server = createServer({ keepAliveTimeout: 50 }, (_request, response) => {
    void (async () => {
      using _stall = destroyWhenStalled(response, STALL_MS);
      response.end('{}');
      await finished(response);
    })();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  try {
    socket.resume().write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
    const closed = once(socket, 'close');
    const [hadError] = await withDeadline('the end of the connection', DEADLINE_MS, closed);
    assert.equal(hadError, false);
  } finally {
    socket.destroy();
    server.close();
  }
});
