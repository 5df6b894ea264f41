import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { text } from 'node:stream/consumers';
import Fastify from 'fastify';
import { EventStream } from './event-stream.ts';

/** More than the kernel buffers for a connection that is not read. */
const EVENTS = 500;
const DATA = 'x'.repeat(64 << 10);

test('a reader that does not keep up misses only the events that the next one replaces', async () => {
  const app = Fastify();
  const sent = Promise.withResolvers<undefined>();
  app.get('/', async (_request, reply) => {
    const stream = new EventStream(reply);
    void stream.send('first');
    for (let index = 0; index < EVENTS; index += 1) {
      stream.sendIfRead(DATA);
      await new Promise(setImmediate);
    }
    void stream.send('last');
    stream.end();
    sent.resolve(undefined);
    return reply;
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  try {
    const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1').pause();
    await once(socket, 'connect');
    socket.write('GET / HTTP/1.0\r\n\r\n');
    await sent.promise;
    const events = [...(await text(socket)).matchAll(/^data: (.*)$/gmu)].map(([, data]) => data);
    assert.deepEqual([events[0], events.at(-1)], ['"first"', '"last"']);
    assert.ok(events.length > 2 && events.length < EVENTS, `${events.length} events`);
  } finally {
    await app.close();
  }
});

test('a client that left before the stream begins counts as gone', async () => {
  const app = Fastify();
  const wasGone = Promise.withResolvers<boolean>();
  const arrived = Promise.withResolvers<void>();
  app.get('/', async (_request, reply) => {
    const closed = once(reply.raw, 'close');
    arrived.resolve();
    await closed;
    wasGone.resolve(new EventStream(reply).left.aborted);
    return reply;
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  try {
    const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
    socket.write('GET / HTTP/1.0\r\n\r\n');
    await arrived.promise;
    socket.destroy();
    assert.equal(await wasGone.promise, true);
  } finally {
    await app.close();
  }
});
