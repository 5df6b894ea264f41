import { TeamMemberRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';

export function addListTeamMembers(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/teams/:team/members',
    config: { audience: 'member' },
    schema: {
      ...ACCOUNT,
      operationId: 'listTeamMembers',
      summary: 'List the members of a team',
      params: TeamParams,
      response: answers(200, z.array(TeamMemberRecord), [401, 404, 503]),
    },
    handler: ({ teamId }) => accounts.teams.listMembers(teamId),
  });
}
