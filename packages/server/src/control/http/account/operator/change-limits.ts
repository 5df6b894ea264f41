import { ChangeLimitsRequest } from '@coppice/contract';
import type { OwnLimits } from '../../../limits/own-limits.ts';
import { setLimits } from '../../../operator/organization-desk.ts';
import { answers, NOTHING } from '../../answers/answers.ts';

import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT, OrganizationParams } from '../session/account-schema.ts';

export function addChangeLimits(
  app: App,
  { db, organizationAudit }: Pick<HttpParts, 'db' | 'organizationAudit'>,
): void {
  app.route({
    method: 'PATCH',
    url: '/account/operator/organizations/:organization/limits',
    schema: {
      ...ACCOUNT,
      operationId: 'changeOrganizationLimits',
      summary: 'Change limits of an organization, in force within 10 s; for the operator',
      params: OrganizationParams,
      body: ChangeLimitsRequest,
      response: answers(204, NOTHING, [400, 401, 403, 404, 503]),
    },
    handler: async ({ params, body, userId, log }, reply) => {
      await setLimits({ db, audit: organizationAudit }, params.organization, body as Partial<OwnLimits>);
      // The organization's own log names the operator, and no person of another organization.
      log.info({ organization_id: params.organization, user_id: userId, limits: body }, 'limits changed');
      return reply.code(204).send(null);
    },
  });
}
