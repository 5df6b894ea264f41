import type { IncomingMessage } from 'node:http';

const DRAIN_TIMEOUT_MS = 10_000;

/**
 * Reads off what is left of a request that has been answered: a connection that is closed with something unread is reset, and
 * the guest may lose the answer. One that does not come to its end is cut.
 */
export function drainRequest(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  const timer = setTimeout(() => request.socket.destroy(), DRAIN_TIMEOUT_MS);
  request.once('close', () => clearTimeout(timer));
  request.resume();
}
