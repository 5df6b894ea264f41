/** Measures every request from its arrival until its connection is free or broken. */
import type { FastifyReply } from 'fastify';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';

const SWITCHING_PROTOCOLS = 101;

export function addRequestMetrics(app: App, parts: Pick<HttpParts, 'metrics'>): void {
  app.decorate('countError', (code) => parts.metrics.requests.countError(code));
  app.addHook('onRequest', async ({ method, routeOptions, is404 }, reply) => {
    const startedAt = performance.now();
    // Other hooks of a CORS preflight see a route `*`; a request without a route has none.
    const route = is404 ? undefined : routeOptions.url;
    reply.raw.once('close', () =>
      parts.metrics.requests.note({
        method,
        route,
        status: findStatus(reply),
        durationMs: performance.now() - startedAt,
      }),
    );
  });
}

/** Returns undefined if the answer was not sent as a whole. */
function findStatus({ raw }: FastifyReply): number | undefined {
  if (raw.writableFinished) return raw.statusCode;
  // An accepted WebSocket leaves its answer unwritten: `ws` writes to the connection itself.
  const isUpgrade = Reflect.get(raw.req, 'upgrade') === true;
  return isUpgrade && !raw.headersSent ? SWITCHING_PROTOCOLS : undefined;
}
