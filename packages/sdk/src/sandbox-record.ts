import {
  readArray,
  readFlag,
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
  readStringMap,
} from './transport/wire.ts';

/** A state of a sandbox. A newer service may know more of them. */
export type SandboxStatus =
  | 'creating'
  | 'running'
  | 'hibernated'
  | 'destroyed'
  | 'failed'
  | (string & Record<never, never>);

/** The service's record of a sandbox. Times are ISO 8601 UTC. */
export interface SandboxInfo {
  id: string;
  status: SandboxStatus;
  /** The team that it belongs to: that of the key that made it. Null from a service that does not tell. */
  teamId: string | null;
  /** Resolved image reference. */
  image: string;
  region: string;
  vcpus: number;
  memMiB: number;
  diskMiB: number;
  /** How long the create took on the service's side; null while it is under way. */
  createMs: number | null;
  createdAt: string;
  /** Null while it lives. */
  endedAt: string | null;
  /** Since when it is hibernated; null while it is not. */
  hibernatedAt: string | null;
  /** Idle time in seconds after which the sandbox is destroyed, or hibernated; 0 means never. */
  timeout: number;
  /** When it ends, or is hibernated, if nothing more is asked of it; null if never. */
  expiresAt: string | null;
  /** Seconds after which the sandbox ends whatever happens; null when there is no such limit. */
  maxLifetime: number | null;
  /** Idle, it is hibernated instead of destroyed, and the next call that uses it resumes it. */
  autoHibernate: boolean;
  labels: Record<string, string>;
  /** The sandbox it was forked from, or the snapshot of which it came from; null if it was made from an image. */
  parentId: string | null;
  /** Names the team secret that keys its audit log. */
  auditKeyId: string | null;
  /** Why it failed or was destroyed. */
  statusReason: string | null;
  /** What is being done to it right now, for example `hibernating`. */
  operation: string | null;
}

/** What a sandbox used, answered by its destruction. */
export interface DestroyResult {
  status: string;
  /** CPU time of the whole virtual machine, read on the host. */
  cpuMs: number;
  /** Peak resident memory of the whole virtual machine, read on the host. */
  memPeakBytes: number;
  /** Wall-clock time from create to destroy. */
  uptimeMs: number;
  /** Exact amount; fractions are normal. */
  costCents: number;
}

export function parseSandboxInfo(value: unknown): SandboxInfo {
  const record = readObject(value, 'the sandbox record');
  return {
    id: readString(record, 'id'),
    status: readString(record, 'status'),
    teamId: readOptionalString(record, 'team_id'),
    image: readString(record, 'image'),
    region: readString(record, 'region'),
    vcpus: readNumber(record, 'vcpus'),
    memMiB: readNumber(record, 'mem_mib'),
    diskMiB: readNumber(record, 'disk_mib'),
    createMs: readOptionalNumber(record, 'create_ms'),
    createdAt: readString(record, 'created_at'),
    endedAt: readOptionalString(record, 'ended_at'),
    hibernatedAt: readOptionalString(record, 'hibernated_at'),
    timeout: readNumber(record, 'timeout'),
    expiresAt: readOptionalString(record, 'expires_at'),
    maxLifetime: readOptionalNumber(record, 'max_lifetime'),
    autoHibernate: readFlag(record, 'auto_hibernate'),
    labels: readStringMap(record, 'labels'),
    parentId: readOptionalString(record, 'parent_id'),
    auditKeyId: readOptionalString(record, 'audit_key_id'),
    statusReason: readOptionalString(record, 'status_reason'),
    operation: readOptionalString(record, 'operation'),
  };
}

export function parseSandboxInfos(value: unknown): SandboxInfo[] {
  return readArray(value, 'the list of sandboxes', parseSandboxInfo);
}

export function parseDestroyResult(value: unknown): DestroyResult {
  const result = readObject(value, 'the destroy result');
  return {
    status: readString(result, 'status'),
    cpuMs: readNumber(result, 'cpu_ms'),
    memPeakBytes: readNumber(result, 'mem_peak_bytes'),
    uptimeMs: readNumber(result, 'uptime_ms'),
    costCents: readNumber(result, 'cost_cents'),
  };
}
