/**
 * Bytes between two sockets, both ways, with back pressure and half-close: what one ends, the other hears as an end, and
 * what one breaks off, the other hears as a reset.
 */
import type { Socket } from 'node:net';

/** Long enough for what waits on purpose (a shell, a queue); ends what both ends have forgotten. */
const IDLE_MS = 3_600_000;
const KEEP_ALIVE_MS = 60_000;

/** Breaks off at once: the peer is not left waiting for anything. */
export function resetSocket(socket: Socket): void {
  if (socket.destroyed) return;
  if (socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}

/** Resolves when both are closed. Moves no bytes yet. */
export async function joinEnds(one: Socket, other: Socket, idleMs: number = IDLE_MS): Promise<void> {
  const closed = [follow(one, other), follow(other, one)];
  for (const socket of [one, other]) {
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.setTimeout(idleMs, () => resetSocket(socket));
  }
  await Promise.all(closed);
}

function follow(socket: Socket, other: Socket): Promise<undefined> {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const onClose = () => {
    const isWhole = socket.readableEnded && socket.writableFinished;
    if (!isWhole) resetSocket(other);
    resolve(undefined);
  };
  // What was wrong does not matter: a close follows.
  socket.on('error', () => undefined);
  if (socket.closed) onClose();
  else socket.once('close', onClose);
  return promise;
}
