/** Requests that another control has authenticated, counted and forwarded to this one. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** The control that forwards a request adds it. In other requests it is ignored. */
export const CLIENT_ADDRESS = 'coppice-client-address';

/** Connections of other controls, which have proven what they are. */
const peers = new WeakSet<Socket>();

/** Call for a connection of another control before its first request. */
export function markPeer(socket: Socket): void {
  peers.add(socket);
}

export function isForwarded({ socket }: Pick<IncomingMessage, 'socket'>): boolean {
  return peers.has(socket);
}

/** Returns the address of the client of a forwarded request; undefined for one that is not forwarded. */
export function readClientAddress({ socket, headers }: IncomingMessage): string | undefined {
  const address = headers[CLIENT_ADDRESS];
  return peers.has(socket) && typeof address === 'string' ? address : undefined;
}
