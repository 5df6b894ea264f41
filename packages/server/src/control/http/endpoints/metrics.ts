import type { App } from '../app.ts';
import { buildTokenCheck } from '../access/metrics-token.ts';
import type { HttpParts } from '../parts.ts';

/** Metrics for Prometheus. Without a token there is no such route. The API description is for tenants and lacks it. */
export function addMetrics(
  app: App,
  { metrics, metricsToken, keyGuesses }: Pick<HttpParts, 'metrics' | 'metricsToken' | 'keyGuesses'>,
): void {
  if (metricsToken === undefined) return;
  const check = buildTokenCheck(metricsToken);
  app.route({
    method: 'GET',
    url: '/metrics',
    schema: { hide: true },
    handler: async ({ clientAddress, headers: { authorization } }, reply) => {
      await keyGuesses.check(clientAddress, { authorization }, async () => check(authorization));
      const text = await metrics.write();
      return reply.type(metrics.contentType).header('cache-control', 'no-store').send(text);
    },
  });
}
