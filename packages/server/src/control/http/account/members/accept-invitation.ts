import { AcceptInvitationRequest, AccountRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';
import { getAccount } from '../session/begin-session.ts';

export function addAcceptInvitation(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/invitations/accept',
    schema: {
      ...ACCOUNT,
      operationId: 'acceptInvitation',
      summary: 'Join an organization that you were invited to',
      body: AcceptInvitationRequest,
      response: answers(200, AccountRecord, [400, 401, 403, 409, 429, 503]),
    },
    handler: async ({ userId, body, clientAddress }) => {
      const { user } = await getAccount(accounts, userId);
      await accounts.invitations.accept(body.invitation, { userId, email: user.email, clientAddress });
      return getAccount(accounts, userId);
    },
  });
}
