import { PutSecretRequest, SecretRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SecretParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addPutSecret(app: App, { namedSecrets }: Pick<HttpParts, 'namedSecrets'>): void {
  app.route({
    method: 'PUT',
    url: '/v1/secrets/:name',
    config: { access: 'organization' },
    schema: {
      operationId: 'putSecret',
      summary: 'Store a secret of the organization, or replace its value',
      description:
        'Credentials refer to it by `{"secret": "<name>"}` in place of a value. Running sandboxes whose credentials name ' +
        'it use the new value from their next request on: the answer waits up to 5 s for that, and `outdated_sandboxes` ' +
        'counts those that were not reached yet. Hibernated sandboxes use it from their resume.',
      params: SecretParams,
      body: PutSecretRequest,
      response: answers(200, SecretRecord, [400, 401, 413, 429, 503]),
    },
    handler: (request) => {
      const { reach, params, body } = request;
      return namedSecrets.put({ reach, by: actorOf(request) }, params.name, body);
    },
  });
}
