import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Duplex } from 'node:stream';

export interface JoinedSide {
  socket: Duplex;
  /** Bytes that were already read from the socket; `onData` does not count them. */
  head?: Buffer;
  /** Called with the number of bytes of each chunk from the socket. */
  onData?: (bytes: number) => void;
}

/**
 * Passes bytes both ways until both sockets are closed. The end of one ends the other, and a socket that breaks, or is
 * already broken, destroys the other.
 */
export async function joinSockets(one: JoinedSide, other: JoinedSide): Promise<void> {
  await Promise.all([carry(one, other.socket), carry(other, one.socket)]);
}

/**
 * Formats the 101 answer, after which only bytes pass. `fields`: names and values, alternating. Throws TypeError for
 * fields that HTTP forbids: they come from services that may be hostile, and Node does not check them here.
 */
export function formatSwitch(fields: readonly string[]): string {
  const lines = ['HTTP/1.1 101 Switching Protocols'];
  for (let index = 0; index + 1 < fields.length; index += 2) {
    const [name = '', value = ''] = fields.slice(index, index + 2);
    validateHeaderName(name);
    validateHeaderValue(name, value);
    lines.push(`${name}: ${value}`);
  }
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function carry({ socket: from, head, onData }: JoinedSide, to: Duplex): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (head !== undefined && head.length > 0) to.write(head);
  if (onData !== undefined) from.on('data', (chunk: Buffer) => onData(chunk.length));
  from.on('error', () => to.destroy());
  from.once('close', () => {
    if (!from.readableEnded) to.destroy();
    else if (!to.writableEnded) to.end();
    resolve();
  });
  from.pipe(to);
  // A socket emits its events once, possibly before this call.
  if (from.closed) {
    to.destroy();
    resolve();
  }
  return promise;
}
