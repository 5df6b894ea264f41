/** Tables of sandboxes. Times are Unix milliseconds, money is in whole cost units (contract, cost.ts). */
import type { NetworkPolicy, SandboxOperation, SandboxState, StatusReason } from '@coppice/contract';
import type { ColumnType, Generated, Insertable, JSONColumnType, Selectable, Updateable } from 'kysely';
import type { StateChange } from './state-change.ts';

/** Null if nothing is restricted, or if the sandbox has ended. */
export type NetworkColumn = ColumnType<
  NetworkPolicy | null,
  NetworkPolicy | null | undefined,
  NetworkPolicy | null
>;

export interface SandboxTable {
  id: string;
  /** Counts the changes by the driver, each of which names the version that it changes. */
  version: Generated<number>;
  organization_id: string;
  /** Team of the API key that created it. */
  team_id: string;
  status: ColumnType<SandboxState, SandboxState, StateChange['status']>;
  status_reason: ColumnType<
    StatusReason | null,
    StatusReason | null | undefined,
    StateChange['status_reason']
  >;
  /** Unique among the sandboxes of the team that have not ended. */
  name: Generated<string | null>;
  image: string;
  region: string;
  /** The runner that has its VM, or its hibernation. Null for one from before runners had ids, until it is claimed. */
  runner_id: Generated<string | null>;
  vcpus: number;
  mem_mib: number;
  disk_mib: number;
  timeout_s: number;
  max_lifetime_s: number | null;
  /** Time of the wall clock at which it ends; null without one. */
  ends_at: Generated<number | null>;
  labels: JSONColumnType<Record<string, string>>;
  parent_id: string | null;
  /** Id of the fork (`fork…`) or the snapshot (`snap…`) that it came from; null for a create. */
  origin: Generated<string | null>;
  auto_hibernate: Generated<boolean>;
  /** `hibernated`: id of its capture. `running`: id of a requested capture, which may have replaced the VM already. */
  hibernation_id: Generated<string | null>;
  hibernated_at: Generated<number | null>;
  /** `hibernated`: it is about to run, and holds vCPUs and memory. */
  is_resuming: Generated<boolean>;
  /** Id of the rollback whose outcome is unknown, and id of its snapshot; both or neither. */
  rollback_id: Generated<string | null>;
  rollback_snapshot_id: Generated<string | null>;
  /** The operation of its driver at the last heartbeat, for lists: stored-state.ts. Each change by the driver clears it. */
  operation: Generated<SandboxOperation | null>;
  /** Whether requests were open at the last heartbeat. The sandbox does not end for idleness meanwhile. */
  is_in_use: Generated<boolean>;
  create_ms: number | null;
  created_at: number;
  /** Last request to the guest, written every few seconds. The idle timer starts from it after a restart. */
  last_active_at: number;
  /** When the runner last confirmed that the VM exists. Billing of a lost sandbox ends here. */
  last_seen_at: number;
  ended_at: number | null;
  /**
   * Boot of the host under which it was created or, after a reboot, resumed. Times in milliseconds since that boot: see
   * time/lifetime.ts.
   */
  boot_id: string | null;
  created_boot_ms: number | null;
  last_seen_boot_ms: number | null;
  /**
   * Time in all stretches of running that are over, and in all hibernations that are over. Their sum is the age at
   * which the current stretch or hibernation began.
   */
  billed_ms: Generated<number>;
  hibernated_ms: Generated<number>;
  /** Usage of all VMs that it had and that are gone: the sum, and the highest peak. */
  cpu_ms: Generated<number>;
  mem_peak_bytes: Generated<number>;
  uptime_ms: Generated<number>;
  /** `numeric(40,0)`, read and written as text so that no digit is lost. */
  cost_units: Generated<string>;
  /** Id of the team secret of its audit chain. Null for a sandbox older than team secrets, until its first entry. */
  audit_key_id: Generated<string | null>;
  /** When its whole audit log was stored in the object store; null before. */
  audit_stored_at: Generated<number | null>;
  network: NetworkColumn;
  /** Variables of its processes as JSON, sealed: environments.ts. Null without any, and after the end. */
  sealed_env: Generated<Buffer | null>;
  /** Where its processes start; null for the directory of the image. */
  cwd: Generated<string | null>;
  /** The disk at `/workspace`; also after the end, when it may be deleted or of another sandbox. */
  disk_id: Generated<string | null>;
  disk_name: Generated<string | null>;
  /** `hibernated`: the version of the disk that the guest has mounted. */
  disk_version: Generated<number | null>;
  /** Set if the holder of the disk before this one was lost: the version that was left, and when it was stored. */
  disk_recovered_version: Generated<number | null>;
  disk_recovered_at: Generated<number | null>;
  /** Of a pending rollback: the version of the disk in its snapshot. */
  rollback_disk_version: Generated<number | null>;
}

export interface IdempotencyKeyTable {
  organization_id: string;
  route: string;
  key: string;
  body_sha256: Buffer;
  /** Id of what the request makes: a sandbox, a fork, a snapshot or a rollback. */
  subject_id: string;
  /** The control that has carried out the request, or still does; null for one of an earlier version. */
  control_id: string | null;
  created_at: number;
  /** Null while the first request is under way. */
  status_code: number | null;
  /** Body of the answer, as it was sent. */
  answer: string | null;
}

/** Without the variables, as control has the rows of its live sandboxes in memory, nor what it writes only for others. */
export type SandboxRow = Omit<Selectable<SandboxTable>, 'sealed_env' | 'operation' | 'is_in_use'> & {
  has_env: boolean;
};
/** Without a state: every new sandbox has the first one. */
export type NewSandboxRow = Omit<Insertable<SandboxTable>, 'status' | 'status_reason'>;
export type SandboxUpdate = Updateable<SandboxTable>;
