import { ShownAuditSecret } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';

export function addRotateAuditSecret(app: App, { teamSecrets }: Pick<HttpParts, 'teamSecrets'>): void {
  app.route({
    method: 'POST',
    url: '/account/organizations/:organization/teams/:team/audit-secrets',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'rotateAuditSecret',
      summary: 'Create a new secret for audit logs that begin from now on; older logs keep their secrets',
      params: TeamParams,
      body: NoBody,
      response: answers(201, ShownAuditSecret, [400, 401, 403, 404, 503]),
    },
    handler: async ({ teamId }, reply) => {
      const { id, secret } = await teamSecrets.rotate(teamId);
      return reply.code(201).send({ id, secret: secret.reveal() });
    },
  });
}
