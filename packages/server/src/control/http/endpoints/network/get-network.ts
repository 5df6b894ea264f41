import { NetworkRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { buildNetworkRecord } from '../../requests/network-record.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetNetwork(app: App, { sandboxes }: Pick<HttpParts, 'sandboxes'>): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/network',
    config: { access: 'read' },
    schema: {
      operationId: 'getNetwork',
      summary: 'Get the network policy of a sandbox, with counters of allowed and refused traffic',
      params: SandboxParams,
      response: answers(200, NetworkRecord, [401, 404, 409, 503]),
    },
    handler: async (request) => {
      const { egress } = await sandboxes.getDriver(request.reach, request.params.id);
      return buildNetworkRecord(egress.policy, await egress.findCounters());
    },
  });
}
