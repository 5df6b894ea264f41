import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { RegistryParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addDeleteRegistry(app: App, { registries }: Pick<HttpParts, 'registries'>): void {
  app.route({
    method: 'DELETE',
    url: '/v1/registries/:registry',
    config: { access: 'organization' },
    schema: {
      operationId: 'deleteRegistry',
      summary: 'Delete your credentials for an image registry; later creates pull without them',
      params: RegistryParams,
      response: answers(204, NOTHING, [400, 401, 404, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, params } = request;
      await registries.remove({ organizationId, by: actorOf(request) }, params.registry);
      return reply.code(204).send(null);
    },
  });
}
