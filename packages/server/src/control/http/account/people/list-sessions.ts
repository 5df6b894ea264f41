import { SessionRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';

export function addListSessions(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/sessions',
    schema: {
      ...ACCOUNT,
      operationId: 'listSessions',
      summary: 'List your sessions',
      response: answers(200, z.array(SessionRecord), [401, 503]),
    },
    handler: ({ userId, sessionId }) => accounts.sessions.list(userId, sessionId),
  });
}
