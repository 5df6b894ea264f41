/** Captures the first bytes of real Node clients on a local socket that never answers. */
import { once } from 'node:events';
import { request, type RequestOptions } from 'node:http';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { connect, type ConnectionOptions } from 'node:tls';
import { withDeadline } from '../../../lib/waiting/deadline.ts';

const DEADLINE_MS = 10_000;

export function catchClientHello(options: ConnectionOptions): Promise<Buffer> {
  return catchFirstFlight((port) => connect({ host: '127.0.0.1', port, ...options }));
}

export function catchHttpHead(options: RequestOptions, body = ''): Promise<Buffer> {
  return catchFirstFlight((port) => request({ host: '127.0.0.1', port, ...options }).end(body));
}

interface Client {
  on(event: 'error', listener: () => void): unknown;
  destroy(): unknown;
}

async function catchFirstFlight(open: (port: number) => Client): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = open((server.address() as AddressInfo).port);
  client.on('error', () => client.destroy());
  try {
    return await withDeadline('first bytes of the client', DEADLINE_MS, firstChunk(server));
  } finally {
    client.destroy();
    server.close();
  }
}

async function firstChunk(server: ReturnType<typeof createServer>): Promise<Buffer> {
  const [socket] = (await once(server, 'connection')) as [Socket];
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  return chunk;
}
