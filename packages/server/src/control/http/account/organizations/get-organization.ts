import { OrganizationRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';

export function addGetOrganization(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization',
    config: { audience: 'member' },
    schema: {
      ...ACCOUNT,
      operationId: 'getOrganization',
      summary: 'Get an organization that you belong to',
      params: OrganizationParams,
      response: answers(200, OrganizationRecord, [401, 404, 503]),
    },
    handler: ({ userId, organizationId }) => accounts.organizations.get(userId, organizationId),
  });
}
