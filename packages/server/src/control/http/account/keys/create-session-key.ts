import { SessionKey } from '@coppice/contract';
import { invariant } from '../../../../lib/invariant.ts';
import { answers } from '../../answers/answers.ts';
import { NoBody } from '../../answers/no-body.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';
import { readSessionToken } from '../session/session-cookie.ts';

export function addCreateSessionKey(app: App, { sessionKeys }: Pick<HttpParts, 'sessionKeys'>): void {
  app.route({
    method: 'POST',
    url: '/account/organizations/:organization/teams/:team/session-key',
    config: { audience: 'team' },
    schema: {
      ...ACCOUNT,
      operationId: 'createSessionKey',
      summary: 'Get the API key of your session for a team: it has your rights, and ends with the session',
      params: TeamParams,
      body: NoBody,
      response: answers(200, SessionKey, [400, 401, 403, 404, 503]),
    },
    handler: async (request) => {
      const { sessionId, organizationId, teamId } = request;
      const token = readSessionToken(request);
      invariant(token, 'a request of a session has no token');
      const made = await sessionKeys.ensure({ id: sessionId, token }, { organizationId, teamId });
      return {
        id: made.id,
        key: made.key,
        team_id: teamId,
        team_only: made.reach.onlyTeamId !== null,
        expires_at: new Date(made.expiresAt).toISOString(),
      };
    },
  });
}
