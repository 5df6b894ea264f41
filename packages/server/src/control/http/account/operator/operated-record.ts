import { costCents, type OperatedOrganization } from '@coppice/contract';
import type { OrganizationSummary } from '../../../operator/organization-desk.ts';

export function buildOperated(summary: OrganizationSummary): OperatedOrganization {
  const { id, name, region, createdAt, sandboxes, spentUnits, creditLeftUnits, limits } = summary;
  return {
    id,
    name,
    region,
    created_at: new Date(createdAt).toISOString(),
    sandboxes,
    cost_cents: costCents(spentUnits),
    credit_left_cents: creditLeftUnits === undefined ? null : costCents(creditLeftUnits),
    limits,
  };
}
