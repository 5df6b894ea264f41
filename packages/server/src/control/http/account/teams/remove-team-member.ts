import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamMemberParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

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
    handler: async (request, reply) => {
      const { organizationId, teamId, params } = request;
      await accounts.teams.removeMember({ organizationId, teamId }, params.member, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
