import { Server } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** For requests on connections that a load balancer has just made, or keeps. */
const GRACE_MS = 500;

/**
 * Accepts no more connections, and keeps those that are open for a moment: a request that is on its way gets an answer, which
 * closes its connection. `close` of an HTTP server ends connections without a request at once, also those.
 */
export async function stopListening(server: Server): Promise<void> {
  Server.prototype.close.call(server);
  await delay(GRACE_MS);
}
