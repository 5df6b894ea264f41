import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamMemberParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addAddTeamMember(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'PUT',
    url: '/account/organizations/:organization/teams/:team/members/:member',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'addTeamMember',
      summary: 'Add a member of the organization to a team',
      params: TeamMemberParams,
      body: NoBody,
      response: answers(204, NOTHING, [401, 403, 404, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId, params } = request;
      await accounts.teams.addMember({ organizationId, teamId }, params.member, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
