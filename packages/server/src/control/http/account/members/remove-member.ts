import { AppError } from '@coppice/contract';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, MemberParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addRemoveMember(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'DELETE',
    url: '/account/organizations/:organization/members/:member',
    config: { audience: 'member' },
    schema: {
      ...ACCOUNT,
      operationId: 'removeMember',
      summary: 'Remove a member from an organization, or leave it',
      description:
        'Members may remove themselves; owners may remove any member. The last owner cannot be removed.',
      params: MemberParams,
      response: answers(204, NOTHING, [401, 403, 404, 409, 503]),
    },
    handler: async (request, reply) => {
      const { userId, role, organizationId, params } = request;
      if (role !== 'owner' && params.member !== userId)
        throw new AppError('forbidden', 'only an owner of the organization may remove others from it');
      await accounts.members.remove({ organizationId, userId: params.member }, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
