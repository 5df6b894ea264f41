import { InvitationRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';

export function addListInvitations(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/invitations',
    config: { audience: 'owner' },
    schema: {
      ...ACCOUNT,
      operationId: 'listInvitations',
      summary: 'List the invitations that can still be accepted',
      params: OrganizationParams,
      response: answers(200, z.array(InvitationRecord), [401, 403, 404, 503]),
    },
    handler: ({ organizationId }) => accounts.invitations.list(organizationId),
  });
}
