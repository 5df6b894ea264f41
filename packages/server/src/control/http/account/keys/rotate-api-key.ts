import { CreatedApiKey, RotateApiKeyRequest } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, KeyParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

const Body = z.preprocess((body) => body ?? {}, RotateApiKeyRequest);

export function addRotateApiKey(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/organizations/:organization/teams/:team/keys/:key/rotate',
    config: { audience: 'team' },
    schema: {
      ...ACCOUNT,
      operationId: 'rotateApiKey',
      summary: 'Replace an API key with a new one; both are valid until the overlap ends',
      params: KeyParams,
      body: Body,
      response: answers(201, CreatedApiKey, [400, 401, 403, 404, 409, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId, params } = request;
      const owner = { organizationId, teamId };
      const change = { ...request.body, by: actorOf(request) };
      return reply.code(201).send(await accounts.keys.rotate(owner, params.key, change));
    },
  });
}
