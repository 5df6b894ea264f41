/** Times are Unix milliseconds, money is in whole cost units (contract, cost.ts). */
import type { NetworkPolicy, SandboxState, StatusReason } from '@coppice/contract';
import type { ColumnType, Generated, Insertable, JSONColumnType, Selectable, Updateable } from 'kysely';

/** null: nothing is restricted, or the sandbox has ended. */
export type NetworkColumn = ColumnType<
  NetworkPolicy | null,
  NetworkPolicy | null | undefined,
  NetworkPolicy | null
>;

export interface SandboxTable {
  id: string;
  organization_id: string;
  /** That of the key that made it. */
  team_id: string;
  status: SandboxState;
  status_reason: StatusReason | null;
  image: string;
  region: string;
  vcpus: number;
  mem_mib: number;
  disk_mib: number;
  timeout_s: number;
  max_lifetime_s: number | null;
  labels: JSONColumnType<Record<string, string>>;
  parent_id: string | null;
  /** The fork (`fork…`) or the snapshot (`snap…`) that it came from; null for a create. */
  origin: Generated<string | null>;
  auto_hibernate: Generated<boolean>;
  /** `hibernated`: its capture. `running`: the one that was asked for, and may be in the VM's place by now. */
  hibernation_id: Generated<string | null>;
  hibernated_at: Generated<number | null>;
  /** The rollback whose outcome is to be found out, and the snapshot that it is to; both or neither. */
  rollback_id: Generated<string | null>;
  rollback_snapshot_id: Generated<string | null>;
  create_ms: number | null;
  created_at: number;
  /** Last request to the guest, written every few seconds: what the idle timer starts from after a restart. */
  last_active_at: number;
  /** When the runner last confirmed that the VM is there: billing of a lost sandbox ends here. */
  last_seen_at: number;
  ended_at: number | null;
  /** Boot of the host that it was created under, and times since then: see time/lifetime.ts. */
  boot_id: string | null;
  created_boot_ms: number | null;
  last_seen_boot_ms: number | null;
  /** Of all stretches of running that are over, and of all hibernations: their sum is the age at which the present began. */
  billed_ms: Generated<number>;
  hibernated_ms: Generated<number>;
  /** Of all VMs that it had and that are gone. */
  cpu_ms: Generated<number>;
  mem_peak_bytes: Generated<number>;
  uptime_ms: Generated<number>;
  /** `numeric(40,0)`: travels as text, so that no digit is lost. */
  cost_units: Generated<string>;
  /** The team secret of its audit chain; null until the first entry of one that is older than those. */
  audit_key_id: Generated<string | null>;
  /** Since when its whole audit log is in the object store, too. */
  audit_stored_at: Generated<number | null>;
  network: NetworkColumn;
}

export interface IdempotencyKeyTable {
  organization_id: string;
  route: string;
  key: string;
  body_sha256: Buffer;
  /** What the request makes: a sandbox, a fork or a snapshot. */
  subject_id: string;
  created_at: number;
  /** Null while the first request is under way. */
  status_code: number | null;
  /** The answer's body, as it was sent. */
  answer: string | null;
}

export type SandboxRow = Selectable<SandboxTable>;
export type NewSandboxRow = Insertable<SandboxTable>;
export type SandboxUpdate = Updateable<SandboxTable>;
