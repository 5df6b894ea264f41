import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, InvitationParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

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
    handler: async (request, reply) => {
      const { organizationId, params } = request;
      await accounts.invitations.revoke(organizationId, params.invitation, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
