import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, SessionParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addEndSession(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'DELETE',
    url: '/account/sessions/:session',
    schema: {
      ...ACCOUNT,
      operationId: 'endSession',
      summary: 'End one of your sessions',
      params: SessionParams,
      response: answers(204, NOTHING, [401, 403, 404, 503]),
    },
    handler: async (request, reply) => {
      await accounts.sessions.end(request.userId, request.params.session, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
