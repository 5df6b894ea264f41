import { RegistryRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';

export function addListRegistries(app: App, { registries }: Pick<HttpParts, 'registries'>): void {
  app.route({
    method: 'GET',
    url: '/v1/registries',
    config: { access: 'read' },
    schema: {
      operationId: 'listRegistries',
      summary: 'List the image registries for which you stored credentials; passwords are never shown',
      response: answers(200, z.array(RegistryRecord), [401, 503]),
    },
    handler: ({ organizationId }) => registries.list(organizationId),
  });
}
