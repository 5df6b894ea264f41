/** The limits that an operator may set for one organization, by the names of their columns. */
import type { OrganizationLimitsTable } from '../billing/billing-tables.ts';

/** Null: the settings apply. 0: no limit, except for those in {@link ALWAYS_LIMITED}. */
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
  'disks',
  'disk_gb',
] as const satisfies readonly LimitName[];

/** Limits for which 0 means zero, not unlimited. */
export const ALWAYS_LIMITED: ReadonlySet<LimitName> = new Set(['snapshot_bytes', 'rate_limit_burst']);
