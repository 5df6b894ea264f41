import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Duplex } from 'node:stream';

export interface JoinedSide {
  socket: Duplex;
  /** What has come from it already; not told to `onData`. */
  head?: Buffer;
  /** Told of each chunk that comes from it. */
  onData?: (bytes: number) => void;
}

/**
 * Passes bytes both ways until both are closed. The end of one is the end of the other, and one that breaks, or has broken
 * already, takes the other with it.
 */
export async function joinSockets(one: JoinedSide, other: JoinedSide): Promise<void> {
  await Promise.all([carry(one, other.socket), carry(other, one.socket)]);
}

/**
 * The answer after which only bytes pass. `fields`: names and values in turn. Throws for those that HTTP does not allow:
 * they come from services that may be hostile, and no writer of Node's looks at them.
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
  // It tells of its end once, and that may have been before.
  if (from.closed) {
    to.destroy();
    resolve();
  }
  return promise;
}
