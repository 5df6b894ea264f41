import type { IncomingMessage } from 'node:http';

const DRAIN_TIMEOUT_MS = 10_000;

/**
 * Reads the rest of an answered request. If a connection is closed with unread data, the kernel resets it, and the
 * guest may lose the answer. The connection is destroyed if the request does not end within 10 s.
 */
export function drainRequest(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  const timer = setTimeout(() => request.socket.destroy(), DRAIN_TIMEOUT_MS);
  request.once('close', () => clearTimeout(timer));
  request.resume();
}
