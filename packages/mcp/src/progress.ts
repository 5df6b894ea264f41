import type { ServerContext } from '@modelcontextprotocol/server';

/** Clients restart the timeout of a call at each notification, and need no more of them. */
const INTERVAL_MS = 500;

/**
 * Returns a function that reports the progress of a call, in bytes. A report within 500 ms of the last one is left out, so
 * that a command with much output cannot flood the client.
 */
export function buildProgress({ mcpReq }: ServerContext): (bytes: number) => void {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return () => undefined;
  let lastAt = -Infinity;
  let lastBytes = 0;
  return (bytes) => {
    const now = performance.now();
    if (now - lastAt < INTERVAL_MS || bytes <= lastBytes) return;
    lastAt = now;
    lastBytes = bytes;
    const params = { progressToken, progress: bytes, message: `${bytes} bytes of output` };
    // A client that has left gets no notifications, and its call is cancelled.
    mcpReq.notify({ method: 'notifications/progress', params }).catch(() => undefined);
  };
}
