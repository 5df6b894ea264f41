import { AccountRecord, SignInRequest } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { NO_SESSION } from '../session/account-schema.ts';
import { beginSession } from '../session/begin-session.ts';

export function addSignIn(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/sign-in',
    schema: {
      ...NO_SESSION,
      operationId: 'signIn',
      summary: 'Sign in; the answer sets the session cookie',
      body: SignInRequest,
      response: answers(200, AccountRecord, [400, 401, 403, 429, 503]),
    },
    handler: async (request, reply) => {
      const userId = await accounts.people.signIn(request.body, request.clientAddress);
      return beginSession(reply, accounts, userId);
    },
  });
}
