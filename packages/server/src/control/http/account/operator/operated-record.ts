import { costCents, type OperatedOrganization } from '@coppice/contract';
import type { OrganizationSummary } from '../../../operator/organization-desk.ts';

/** `creditLeftUnits`: undefined if credit is off. */
export function buildOperated(
  summary: OrganizationSummary,
  creditLeftUnits: bigint | undefined,
): OperatedOrganization {
  const { id, name, region, createdAt, sandboxes, spentUnits, limits } = summary;
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
