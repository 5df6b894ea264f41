import { CreateApiKeyRequest, CreatedApiKey } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addCreateApiKey(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/organizations/:organization/teams/:team/keys',
    config: { audience: 'team' },
    schema: {
      ...ACCOUNT,
      operationId: 'createApiKey',
      summary: 'Create an API key of a team; it is shown only once',
      params: TeamParams,
      body: CreateApiKeyRequest,
      response: answers(201, CreatedApiKey, [400, 401, 403, 404, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId, body } = request;
      const owner = { organizationId, teamId };
      return reply.code(201).send(await accounts.keys.create(owner, body, actorOf(request)));
    },
  });
}
