import { MetricsQuery, SandboxMetrics } from '@coppice/contract';
import { measureSandbox } from '../../../sandbox/measure-sandbox.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetMetrics(
  app: App,
  { sandboxes, openRequests }: Pick<HttpParts, 'sandboxes' | 'openRequests'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/metrics',
    config: { access: 'read' },
    schema: {
      operationId: 'getMetrics',
      summary: 'Measure the CPU time, memory, disks and network of a sandbox, now and in the last hour',
      params: SandboxParams,
      querystring: MetricsQuery,
      response: answers(200, SandboxMetrics, [400, 401, 404, 409, 429, 503]),
    },
    handler: async ({ reach, organizationId, params: { id }, query: { since, step } }) => {
      const { runner } = await sandboxes.getDriver(reach, id);
      const since_ms = Math.max(0, since ?? 0);
      // It may wait for the guest.
      return openRequests.limit(organizationId, () =>
        measureSandbox(runner.measures, id, { since_ms, step_s: step }),
      );
    },
  });
}
