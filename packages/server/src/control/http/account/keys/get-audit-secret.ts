import { AppError, ShownAuditSecret } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, AuditSecretParams } from '../session/account-schema.ts';

export function addGetAuditSecret(app: App, { teamSecrets }: Pick<HttpParts, 'teamSecrets'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/teams/:team/audit-secrets/:secret',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'getAuditSecret',
      summary: 'Get a secret that verifies audit logs of a team',
      params: AuditSecretParams,
      response: answers(200, ShownAuditSecret, [401, 403, 404, 409, 503]),
    },
    handler: async ({ teamId, params }) => {
      const own = await teamSecrets.list(teamId);
      if (!own.some(({ id }) => id === params.secret))
        throw new AppError('not_found', 'the team has no such secret');
      const { id, secret } = await teamSecrets.get(params.secret);
      return { id, secret: secret.reveal() };
    },
  });
}
