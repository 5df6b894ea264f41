/**
 * Joins two sockets in both directions, with back pressure and half-close. If one side ends, the other receives an end;
 * if one side breaks off, the other receives a reset.
 */
import type { Socket } from 'node:net';

/**
 * Long enough for connections that wait on purpose (a shell, a queue). It ends connections that both sides have
 * forgotten.
 */
const IDLE_MS = 3_600_000;
const KEEP_ALIVE_MS = 60_000;

/** Resets a socket at once, so that its peer does not wait. */
export function resetSocket(socket: Socket): void {
  if (socket.destroyed) return;
  if (socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}

/** Joins the ends of two sockets. Resolves when both are closed. The caller pipes the bytes. */
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
  // The error does not matter: a close follows.
  socket.on('error', () => undefined);
  if (socket.closed) onClose();
  else socket.once('close', onClose);
  return promise;
}
