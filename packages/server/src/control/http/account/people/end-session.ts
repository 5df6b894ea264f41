import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, SessionParams } from '../session/account-schema.ts';

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
    handler: async ({ userId, params }, reply) => {
      await accounts.sessions.end(userId, params.session);
      return reply.code(204).send(null);
    },
  });
}
