import { SecretRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SecretParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetSecret(app: App, { namedSecrets }: Pick<HttpParts, 'namedSecrets'>): void {
  app.route({
    method: 'GET',
    url: '/v1/secrets/:name',
    config: { access: 'read' },
    schema: {
      operationId: 'getSecret',
      summary: 'Get a secret of the organization, without its value',
      params: SecretParams,
      response: answers(200, SecretRecord, [401, 404, 503]),
    },
    handler: ({ reach, params }) => namedSecrets.get(reach, params.name),
  });
}
