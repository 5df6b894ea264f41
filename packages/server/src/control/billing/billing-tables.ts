/** Tables of money and limits: see tables.ts. */
import type { Generated } from 'kysely';

/** A stretch of running that is over, billed from `started_at` to `ended_at`. */
export interface BillingSegmentTable {
  sandbox_id: string;
  organization_id: string;
  team_id: string;
  started_at: number;
  ended_at: number;
  vcpus: number;
  mem_mib: number;
}

/** Sums over the sandboxes that have ended, as text: `numeric(40,0)`. Only those that ran are counted. */
export interface BillingAccountTable {
  organization_id: string;
  ended_sandboxes: number;
  vcpu_ms: string;
  mem_mib_ms: string;
  /** Time since which no credit is left, in Unix milliseconds; null while there is some. */
  exhausted_at: number | null;
}

/** The same sums of one team. */
export interface TeamAccountTable extends Pick<
  BillingAccountTable,
  'ended_sandboxes' | 'vcpu_ms' | 'mem_mib_ms'
> {
  team_id: string;
}

export interface CreditGrantTable {
  id: Generated<string>;
  organization_id: string;
  /** Whole cents; a negative amount takes credit back. */
  cents: number;
  /** `welcome`: once for each organization. `before`: settles the organization's cost until then. */
  kind: Generated<'welcome' | 'before' | 'operator'>;
  note: Generated<string>;
  created_at: Generated<number>;
}

/** Limits of one organization. Null: the settings apply. 0: no limit. */
export interface OrganizationLimitsTable {
  organization_id: string;
  sandboxes: number | null;
  vcpus: number | null;
  mem_mib: number | null;
  open_requests: number | null;
  open_streams: number | null;
  snapshot_bytes: number | null;
  rate_limit_rps: number | null;
  rate_limit_burst: number | null;
  disks: number | null;
  disk_gb: number | null;
}

/** Bytes that a disk stored in a month, multiplied by the milliseconds for which it stored them. */
export interface DiskStorageTable {
  disk_id: string;
  /** For example 2026-11. */
  month: string;
  organization_id: string;
  team_id: string;
  name: string;
  /** `numeric(40,0)`, as text. */
  byte_ms: string;
}
