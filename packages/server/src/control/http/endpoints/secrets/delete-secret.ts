import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SecretParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addDeleteSecret(app: App, { namedSecrets }: Pick<HttpParts, 'namedSecrets'>): void {
  app.route({
    method: 'DELETE',
    url: '/v1/secrets/:name',
    config: { access: 'organization' },
    schema: {
      operationId: 'deleteSecret',
      summary: 'Delete a secret of the organization that no credentials name',
      description:
        'While the credentials of a sandbox that has not ended name the secret, the answer is `secret_in_use` and names ' +
        'such sandboxes.',
      params: SecretParams,
      response: answers(204, NOTHING, [401, 404, 409, 503]),
    },
    handler: async (request, reply) => {
      const { reach, params } = request;
      await namedSecrets.remove({ reach, by: actorOf(request) }, params.name);
      return reply.code(204).send(null);
    },
  });
}
