import { OrganizationAuditQuery } from '@coppice/contract';
import {
  ORGANIZATION_AUDIT_ANSWERS,
  ORGANIZATION_AUDIT_TEXT,
  sendOrganizationAudit,
  type OrganizationAuditParts,
} from '../../answers/organization-audit.ts';
import type { App } from '../../app.ts';

export function addGetOrganizationAudit(app: App, parts: OrganizationAuditParts): void {
  app.route({
    method: 'GET',
    url: '/v1/organization/audit',
    config: { access: 'organization' },
    schema: {
      operationId: 'getOrganizationAudit',
      summary: 'Get the audit log of the organization, or only its head',
      description: ORGANIZATION_AUDIT_TEXT,
      querystring: OrganizationAuditQuery,
      response: ORGANIZATION_AUDIT_ANSWERS,
    },
    handler: ({ organizationId, query }, reply) =>
      sendOrganizationAudit(reply, { organizationId, query }, parts),
  });
}
