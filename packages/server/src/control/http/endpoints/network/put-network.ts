import { NetworkRecord, PutNetworkRequest } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { buildNetworkRecord } from '../../requests/network-record.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { readPolicy } from '../../requests/requested-egress.ts';

export function addPutNetwork(app: App, parts: Pick<HttpParts, 'sandboxes' | 'rules' | 'runner'>): void {
  app.route({
    method: 'PUT',
    url: '/v1/runs/:id/network',
    config: { access: 'full' },
    schema: {
      operationId: 'setNetwork',
      summary: 'Change the network policy of a sandbox while it lives',
      description:
        'In force when this answers, for connections that are open, too: those that it refuses end. Of a hibernated sandbox ' +
        'it holds from the resume on. When it fails, what held before holds.',
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
