import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamMemberParams } from '../session/account-schema.ts';

export function addRemoveTeamMember(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'DELETE',
    url: '/account/organizations/:organization/teams/:team/members/:member',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'removeTeamMember',
      summary: 'Remove a member from a team',
      params: TeamMemberParams,
      response: answers(204, NOTHING, [401, 403, 404, 503]),
    },
    handler: async ({ teamId, params }, reply) => {
      await accounts.teams.removeMember(teamId, params.member);
      return reply.code(204).send(null);
    },
  });
}
