import type { Duplex } from 'node:stream';

export interface JoinedSide {
  socket: Duplex;
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

function carry({ socket: from, onData }: JoinedSide, to: Duplex): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
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
