import { MemberRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';

export function addListMembers(app: App, { accounts }: Pick<HttpParts, 'accounts'>): void {
  app.route({
    method: 'GET',
    url: '/account/organizations/:organization/members',
    config: { audience: 'member' },
    schema: {
      ...ACCOUNT,
      operationId: 'listMembers',
      summary: 'List the members of an organization',
      params: OrganizationParams,
      response: answers(200, z.array(MemberRecord), [401, 404, 503]),
    },
    handler: ({ organizationId }) => accounts.members.list(organizationId),
  });
}
