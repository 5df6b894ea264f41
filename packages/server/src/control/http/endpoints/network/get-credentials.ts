import { CredentialRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetCredentials(
  app: App,
  { sandboxes, grants }: Pick<HttpParts, 'sandboxes' | 'grants'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/credentials',
    config: { access: 'read' },
    schema: {
      operationId: 'listCredentials',
      summary: 'List the services whose requests the host signs for a sandbox',
      description: 'Sorted by service, with the rules of each. No answer contains a secret.',
      params: SandboxParams,
      response: answers(200, z.array(CredentialRecord), [401, 404, 409, 503]),
    },
    handler: async (request) => {
      const { row } = await sandboxes.getDriver(request.reach, request.params.id);
      return grants.list(row);
    },
  });
}
