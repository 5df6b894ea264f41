import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';
import { clearSessionCookie } from '../session/session-cookie.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addSignOut(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/sign-out',
    schema: {
      ...ACCOUNT,
      operationId: 'signOut',
      summary: 'End this session',
      body: NoBody,
      response: answers(204, NOTHING, [401, 403, 503]),
    },
    handler: async (request, reply) => {
      await accounts.sessions.end(request.userId, request.sessionId, actorOf(request));
      clearSessionCookie(reply);
      return reply.code(204).send(null);
    },
  });
}
