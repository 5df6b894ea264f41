import { GrantCreditRequest } from '@coppice/contract';
import { grantByOperator } from '../../../operator/organization-desk.ts';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';

export function addGrantCredit(
  app: App,
  { db, organizationAudit }: Pick<HttpParts, 'db' | 'organizationAudit'>,
): void {
  app.route({
    method: 'POST',
    url: '/account/operator/organizations/:organization/credit',
    schema: {
      ...ACCOUNT,
      operationId: 'grantCredit',
      summary: 'Grant credit to an organization, or take some back; for the operator',
      params: OrganizationParams,
      body: GrantCreditRequest,
      response: answers(204, NOTHING, [400, 401, 403, 404, 503]),
    },
    handler: async ({ params: { organization: organizationId }, body, userId, log }, reply) => {
      await grantByOperator({ db, audit: organizationAudit }, { organizationId, ...body });
      // The organization's own log names the operator, and no person of another organization.
      log.info({ organization_id: organizationId, user_id: userId, cents: body.cents }, 'credit granted');
      return reply.code(204).send(null);
    },
  });
}
