/** What an operator may set for one organization, by the columns that it stands in. */
import type { OrganizationLimitsTable } from '../billing/billing-tables.ts';

/** Null: as the settings say. 0: no limit, but for those in {@link ALWAYS_LIMITED}. */
export type OwnLimits = Omit<OrganizationLimitsTable, 'organization_id'>;
export type LimitName = keyof OwnLimits;

export const LIMIT_NAMES = [
  'sandboxes',
  'vcpus',
  'mem_mib',
  'open_requests',
  'open_streams',
  'snapshot_bytes',
  'rate_limit_rps',
  'rate_limit_burst',
] as const satisfies readonly LimitName[];

/** There 0 is nothing at all. */
export const ALWAYS_LIMITED: ReadonlySet<LimitName> = new Set(['snapshot_bytes', 'rate_limit_burst']);
