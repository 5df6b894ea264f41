import { ChangePasswordRequest } from '@coppice/contract';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';

export function addChangePassword(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/password',
    schema: {
      ...ACCOUNT,
      operationId: 'changePassword',
      summary: 'Change your password, and end all your other sessions',
      body: ChangePasswordRequest,
      response: answers(204, NOTHING, [400, 401, 403, 429, 503]),
    },
    handler: async ({ userId, sessionId, body, clientAddress }, reply) => {
      await accounts.people.changePassword(userId, body, clientAddress);
      await accounts.sessions.endOthers(userId, sessionId);
      return reply.code(204).send(null);
    },
  });
}
