import { ApiKeyRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';

export function addListApiKeys(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/teams/:team/keys',
    config: { audience: 'team' },
    schema: {
      ...ACCOUNT,
      operationId: 'listApiKeys',
      summary: 'List the API keys of a team, newest first, including revoked and expired keys',
      params: TeamParams,
      response: answers(200, z.array(ApiKeyRecord), [401, 403, 404, 503]),
    },
    handler: ({ teamId }) => accounts.keys.list(teamId),
  });
}
