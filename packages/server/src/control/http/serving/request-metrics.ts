/** Measures every request from its arrival until its connection is free or broken, and ends its trace then. */
import type { FastifyReply } from 'fastify';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';
import { endTrace, findRoute } from './request-trace.ts';

const SWITCHING_PROTOCOLS = 101;

export function addRequestMetrics(app: App, parts: Pick<HttpParts, 'metrics'>): void {
  app.decorate('countError', (code) => parts.metrics.requests.countError(code));
  app.addHook('onRequest', async (request, reply) => {
    const { method } = request;
    const startedAt = performance.now();
    // Other hooks of a CORS preflight see a route `*`.
    const route = findRoute(request);
    // One listener for both: Node takes more than ten for a leak.
    reply.raw.once('close', () => {
      const status = findStatus(reply);
      parts.metrics.requests.note({ method, route, status, durationMs: performance.now() - startedAt });
      endTrace(request, status);
    });
  });
}

/** Returns undefined if the answer was not sent as a whole. */
function findStatus({ raw }: FastifyReply): number | undefined {
  if (raw.writableFinished) return raw.statusCode;
  // An accepted WebSocket leaves its answer unwritten: `ws` writes to the connection itself.
  const isUpgrade = Reflect.get(raw.req, 'upgrade') === true;
  return isUpgrade && !raw.headersSent ? SWITCHING_PROTOCOLS : undefined;
}
