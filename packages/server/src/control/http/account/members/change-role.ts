import { ChangeRoleRequest } from '@coppice/contract';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, MemberParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addChangeRole(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'PATCH',
    url: '/account/organizations/:organization/members/:member',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'changeRole',
      summary: 'Make a member an owner, or an owner a member',
      description: 'The last owner cannot become a member.',
      params: MemberParams,
      body: ChangeRoleRequest,
      response: answers(204, NOTHING, [400, 401, 403, 404, 409, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, params, body } = request;
      const membership = { organizationId, userId: params.member };
      await accounts.members.changeRole(membership, body.role, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
