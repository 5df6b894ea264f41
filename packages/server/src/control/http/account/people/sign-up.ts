import { AccountRecord, SignUpRequest } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { NO_SESSION } from '../session/account-schema.ts';
import { beginSession } from '../session/begin-session.ts';

export function addSignUp(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/sign-up',
    schema: {
      ...NO_SESSION,
      operationId: 'signUp',
      summary: 'Create an account, and sign in',
      description: 'Requires an invitation, or, if sign-up is open, the name of an organization to create.',
      body: SignUpRequest,
      response: answers(201, AccountRecord, [400, 403, 409, 429, 503]),
    },
    handler: async (request, reply) => {
      const { people } = accounts;
      const userId = await people.signUp(request.body, request.clientAddress);
      return reply.code(201).send(await beginSession(reply, accounts, userId));
    },
  });
}
