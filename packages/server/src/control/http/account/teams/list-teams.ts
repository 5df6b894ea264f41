import { TeamRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';

export function addListTeams(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/teams',
    config: { audience: 'member' },
    schema: {
      ...ACCOUNT,
      operationId: 'listTeams',
      summary: 'List the teams of an organization',
      params: OrganizationParams,
      response: answers(200, z.array(TeamRecord), [401, 404, 503]),
    },
    handler: ({ organizationId }) => accounts.teams.list(organizationId),
  });
}
