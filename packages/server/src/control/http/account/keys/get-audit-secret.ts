import { AppError, ShownAuditSecret } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, AuditSecretParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addGetAuditSecret(
  app: App,
  { db, teamSecrets, organizationAudit }: Pick<HttpParts, 'db' | 'teamSecrets' | 'organizationAudit'>,
): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/teams/:team/audit-secrets/:secret',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'getAuditSecret',
      summary: 'Get a secret that verifies audit logs of a team',
      params: AuditSecretParams,
      response: answers(200, ShownAuditSecret, [401, 403, 404, 409, 429, 503]),
    },
    handler: async (request) => {
      const { organizationId, teamId, params } = request;
      const own = await teamSecrets.list(teamId);
      if (!own.some(({ id }) => id === params.secret))
        throw new AppError('not_found', 'the team has no such secret');
      const { id, secret } = await teamSecrets.get(params.secret);
      await organizationAudit.commit(db, { organizationId, by: actorOf(request) }, async () => ({
        result: undefined,
        notes: [{ event: 'audit_secret.revealed', data: { id, team_id: teamId } }],
      }));
      return { id, secret: secret.reveal() };
    },
  });
}
