import { PutRegistryRequest, RegistryRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { RegistryParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addPutRegistry(app: App, { registries }: Pick<HttpParts, 'registries'>): void {
  app.route({
    method: 'PUT',
    url: '/v1/registries/:registry',
    config: { access: 'organization' },
    schema: {
      operationId: 'putRegistry',
      summary: 'Store or replace your credentials for an image registry',
      description:
        'Creates and builds of images from this registry use the credentials from now on. `registry` is host or host:port ' +
        'as in image references, such as ghcr.io; for images without a registry it is docker.io.',
      params: RegistryParams,
      body: PutRegistryRequest,
      response: answers(200, RegistryRecord, [400, 401, 429, 503]),
    },
    handler: (request) => {
      const { organizationId, params, body } = request;
      return registries.put({ organizationId, by: actorOf(request) }, params.registry, body);
    },
  });
}
