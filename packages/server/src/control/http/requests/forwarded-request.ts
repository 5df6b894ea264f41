/** Requests that another control has authenticated, counted and forwarded to this one. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** The control that forwards a request adds them. In other requests they are ignored. */
export const CLIENT_ADDRESS = 'coppice-client-address';
export const OWN_ORIGIN = 'coppice-own-origin';
/** In an answer to another control: nothing has happened, as this one is still taking the runner that it names, or gives it up. */
export const TAKING_OVER = 'coppice-taking-over';

/** Connections of other controls, which have proven what they are. */
const peers = new WeakSet<Socket>();

/** Call for a connection of another control before its first request. */
export function markPeer(socket: Socket): void {
  peers.add(socket);
}

export function isForwarded({ socket }: Pick<IncomingMessage, 'socket'>): boolean {
  return peers.has(socket);
}

/** Returns a header that the forwarding control has set; undefined for a request that is not forwarded. */
export function readPeerHeader(
  { socket, headers }: Pick<IncomingMessage, 'socket' | 'headers'>,
  name: typeof CLIENT_ADDRESS | typeof OWN_ORIGIN,
): string | undefined {
  const value = headers[name];
  return peers.has(socket) && typeof value === 'string' ? value : undefined;
}
