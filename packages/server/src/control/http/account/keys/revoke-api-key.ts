import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, KeyParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addRevokeApiKey(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'DELETE',
    url: '/account/organizations/:organization/teams/:team/keys/:key',
    config: { audience: 'team' },
    schema: {
      ...ACCOUNT,
      operationId: 'revokeApiKey',
      summary: 'Revoke an API key: new requests with it fail, and open requests end',
      params: KeyParams,
      response: answers(204, NOTHING, [401, 403, 404, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId, params } = request;
      await accounts.keys.revoke({ organizationId, teamId }, params.key, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
