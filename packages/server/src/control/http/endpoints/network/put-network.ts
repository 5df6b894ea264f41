import { NetworkRecord, PutNetworkRequest } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { buildNetworkRecord } from '../../requests/network-record.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { readPolicy } from '../../requests/requested-egress.ts';

export function addPutNetwork(app: App, parts: Pick<HttpParts, 'sandboxes' | 'rules' | 'runners'>): void {
  app.route({
    method: 'PUT',
    url: '/v1/runs/:id/network',
    config: { access: 'full' },
    schema: {
      operationId: 'setNetwork',
      summary: 'Change the network policy of a live sandbox',
      description:
        'The policy is in force when this answers, also for open connections: those that it refuses end. For a hibernated ' +
        'sandbox it is in force from its resume. If the request fails, the old policy stays in force.',
      params: SandboxParams,
      body: PutNetworkRequest,
      response: answers(200, NetworkRecord, [400, 401, 404, 409, 413, 429, 503]),
    },
    handler: async (request) => {
      const { egress } = await parts.sandboxes.getDriver(request.reach, request.params.id);
      const { network, warnings } = await readPolicy(request.body, parts);
      await egress.setPolicy(network);
      return buildNetworkRecord(egress.policy, await egress.findCounters(), warnings);
    },
  });
}
