import { ChangeRoleRequest } from '@coppice/contract';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, MemberParams } from '../session/account-schema.ts';

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
      response: answers(204, NOTHING, [400, 401, 403, 404, 409, 503]),
    },
    handler: async ({ organizationId, params, body }, reply) => {
      await accounts.members.changeRole(organizationId, params.member, body.role);
      return reply.code(204).send(null);
    },
  });
}
