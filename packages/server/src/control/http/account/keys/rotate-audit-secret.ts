import { ShownAuditSecret } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, TeamParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addRotateAuditSecret(
  app: App,
  { db, teamSecrets, organizationAudit }: Pick<HttpParts, 'db' | 'teamSecrets' | 'organizationAudit'>,
): void {
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
      response: answers(201, ShownAuditSecret, [400, 401, 403, 404, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId } = request;
      const change = { organizationId, by: actorOf(request) };
      const { id, secret } = await organizationAudit.commit(db, change, async (transaction) => {
        const result = await teamSecrets.rotate(transaction, teamId);
        const data = { id: result.id, team_id: teamId };
        return { result, notes: [{ event: 'audit_secret.created', data }] };
      });
      return reply.code(201).send({ id, secret: secret.reveal() });
    },
  });
}
