import { CreateOrganizationRequest, OrganizationRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';
import { getAccount } from '../session/begin-session.ts';

export function addCreateOrganization(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'POST',
    url: '/account/organizations',
    schema: {
      ...ACCOUNT,
      operationId: 'createOrganization',
      summary: 'Create an organization, and become its owner',
      description:
        'If sign-up is by invitation only, only owners of the first organization may create others.',
      body: CreateOrganizationRequest,
      response: answers(201, OrganizationRecord, [400, 401, 403, 429, 503]),
    },
    handler: async ({ userId, body, clientAddress }, reply) => {
      const { user } = await getAccount(accounts, userId);
      const owner = { userId, email: user.email, clientAddress };
      return reply.code(201).send(await accounts.organizations.create(owner, body.name));
    },
  });
}
