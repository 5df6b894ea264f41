import { CreateTeamRequest, TeamRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addCreateTeam(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/organizations/:organization/teams',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'createTeam',
      summary: 'Create a team',
      params: OrganizationParams,
      body: CreateTeamRequest,
      response: answers(201, TeamRecord, [400, 401, 403, 404, 409, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, body } = request;
      return reply.code(201).send(await accounts.teams.create(organizationId, body.name, actorOf(request)));
    },
  });
}
