import type { Generated } from 'kysely';

/** A process of control. Times are Unix milliseconds by PostgreSQL's clock, which all controls share. */
export interface ControlTable {
  id: string;
  /** Id of its data directory: two processes with the same one never run at a time. */
  node_id: string;
  version: string;
  started_at: number;
  lease_until: number;
  /** Set by another control that has taken its runners: it never holds its lease again. */
  is_fenced: Generated<boolean>;
  /** `host:port` of its internal listener; null for a control that is alone. */
  address: Generated<string | null>;
  /** Whether it is ending: it gets no more runners. */
  is_leaving: Generated<boolean>;
}

/** A machine that runs VMs. */
export interface RunnerTable {
  /** Random; made by the runner. */
  id: string;
  region: string;
  /** Id of the data directory of the control on the same machine, if there is one: see {@link ControlTable.node_id}. */
  local_to: Generated<string | null>;
  /** The control that has its drivers; null for none. */
  owner: string | null;
  /** Counts its owners. A runner refuses requests of earlier ones. */
  epoch: Generated<number>;
  /** The memory that VMs may still take, as its owner last heard; the same for vCPUs. */
  mem_free_mib: Generated<number>;
  vcpus_free: Generated<number>;
  /** When its owner last saw it with the VMs of all its sandboxes that ran, by the wall clock and since the boot of its host. */
  seen_at: Generated<number | null>;
  seen_boot_id: Generated<string | null>;
  seen_boot_ms: Generated<number | null>;
  /** Since then it gets no new VMs. */
  cordoned_at: Generated<number | null>;
  /** Until then its owner hibernates sandboxes that may be hibernated; null unless it is being drained. */
  drain_until: Generated<number | null>;
  /** `host:port` at which controls reach it; null for one that only the control of its own machine reaches. */
  address: Generated<string | null>;
  /** SHA-256 of its certificate, which controls pin; null without an address. */
  fingerprint: Generated<string | null>;
  /** When it joined last; null if it did not need to. */
  joined_at: Generated<number | null>;
  /** Since then no control connects to it. */
  revoked_at: Generated<number | null>;
  /** When its owner last heard from it in a round of reconciliation; null before the first time. */
  heard_at: Generated<number | null>;
  /** Its measurements at the last round that read its roster: {@link RunnerMetrics} as JSON. Versions may differ, so readers parse it. */
  report: Generated<unknown>;
  /** When an owner last gave it to another control, or meant to; null for never. */
  handed_at: Generated<number | null>;
  /** Until then requests wait, as its owner may not have its sandboxes yet, or no more; null once it has them. */
  taking_until: Generated<number | null>;
}
