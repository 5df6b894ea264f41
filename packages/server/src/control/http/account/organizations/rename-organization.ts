import { OrganizationRecord, RenameOrganizationRequest } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addRenameOrganization(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'PATCH',
    url: '/account/organizations/:organization',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'renameOrganization',
      summary: 'Rename an organization',
      params: OrganizationParams,
      body: RenameOrganizationRequest,
      response: answers(200, OrganizationRecord, [400, 401, 403, 404, 429, 503]),
    },
    handler: async (request) => {
      const { userId, organizationId, body } = request;
      await accounts.organizations.rename(organizationId, body.name, actorOf(request));
      return accounts.organizations.get(userId, organizationId);
    },
  });
}
