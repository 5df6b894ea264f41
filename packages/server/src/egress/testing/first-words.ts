/** Requests of guests' programs, and helpers to read the answers. */
import type { Socket } from 'node:net';
import { withDeadline } from '../../lib/waiting/deadline.ts';

const TIMEOUT_MS = 10_000;

export function httpGet(host: string, path = '/'): string {
  return `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
}

/** Returns all data until the end of the connection, or the code of the error that ended it. */
export function hearOut(socket: Socket): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.once('end', () => {
    socket.end();
    resolve(Buffer.concat(chunks).toString('latin1'));
  });
  return withDeadline('end of the connection', TIMEOUT_MS, promise);
}

/** Returns the first data, the code of an error, or `closed`. */
export function hearFirst(socket: Socket): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.once('data', (chunk: Buffer) => resolve(chunk.toString('latin1')));
  socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.once('close', () => resolve('closed'));
  return withDeadline('first bytes', TIMEOUT_MS, promise);
}
