import { RenameTeamRequest, TeamRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addRenameTeam(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'PATCH',
    url: '/account/organizations/:organization/teams/:team',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'renameTeam',
      summary: 'Rename a team',
      params: TeamParams,
      body: RenameTeamRequest,
      response: answers(200, TeamRecord, [400, 401, 403, 404, 409, 429, 503]),
    },
    handler: (request) => {
      const { organizationId, teamId, body } = request;
      return accounts.teams.rename({ organizationId, teamId }, body.name, actorOf(request));
    },
  });
}
