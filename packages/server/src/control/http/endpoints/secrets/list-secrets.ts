import { SecretRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';

export function addListSecrets(app: App, { namedSecrets }: Pick<HttpParts, 'namedSecrets'>): void {
  app.route({
    method: 'GET',
    url: '/v1/secrets',
    config: { access: 'read' },
    schema: {
      operationId: 'listSecrets',
      summary: 'List the secrets of the organization; values are never shown',
      description: 'Sorted by name. A key that is limited to its team counts only the sandboxes of the team.',
      response: answers(200, z.array(SecretRecord), [401, 503]),
    },
    handler: ({ reach }) => namedSecrets.list(reach),
  });
}
