import { HealthStatus } from '@coppice/contract';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';
import { answers } from '../answers/answers.ts';

export function addHealthz(
  app: App,
  { checkHealth, getAccelerator, version }: Pick<HttpParts, 'checkHealth' | 'getAccelerator' | 'version'>,
): void {
  app.route({
    method: 'GET',
    url: '/healthz',
    schema: {
      operationId: 'getHealth',
      summary: 'Check whether the service can serve',
      security: [],
      response: answers(200, HealthStatus, [503]),
    },
    handler: async () => {
      await checkHealth();
      return { status: 'ok' as const, version, accelerator: getAccelerator() };
    },
  });
}
