import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, InvitationParams } from '../session/account-schema.ts';

export function addRevokeInvitation(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'DELETE',
    url: '/account/organizations/:organization/invitations/:invitation',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'revokeInvitation',
      summary: 'Revoke an invitation',
      params: InvitationParams,
      response: answers(204, NOTHING, [401, 403, 404, 503]),
    },
    handler: async ({ organizationId, params }, reply) => {
      await accounts.invitations.revoke(organizationId, params.invitation);
      return reply.code(204).send(null);
    },
  });
}
