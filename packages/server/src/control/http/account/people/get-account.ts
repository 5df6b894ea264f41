import { AccountRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';
import { getAccount } from '../session/begin-session.ts';

export function addGetAccount(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/me',
    schema: {
      ...ACCOUNT,
      operationId: 'getAccount',
      summary: 'Get the signed-in user, with organizations and teams',
      response: answers(200, AccountRecord, [401, 503]),
    },
    handler: ({ userId }) => getAccount(accounts, userId),
  });
}
