import {
  readArray,
  readFlag,
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
  readStringMap,
} from '../transport/wire.ts';

/** State of a sandbox. A newer service may have more states. */
export type SandboxStatus =
  | 'creating'
  | 'running'
  | 'hibernated'
  | 'destroyed'
  | 'failed'
  | (string & Record<never, never>);

/** The service's record of a sandbox. Times are ISO 8601 UTC. */
export interface SandboxInfo {
  /** Id of the sandbox, for example `run0123456789abcdef0123`. */
  id: string;
  /** State of the sandbox. */
  status: SandboxStatus;
  /** Name that the caller chose. Null without one. */
  name: string | null;
  /**
   * Id of the team that owns the sandbox: the team of the key that created it. Null if the service does not send it.
   */
  teamId: string | null;
  /** Resolved image reference. */
  image: string;
  /** Region of the service. */
  region: string;
  /** Number of virtual CPUs. */
  vcpus: number;
  /** Memory in MiB. */
  memMiB: number;
  /** Size of the scratch disk in MiB. */
  diskMiB: number;
  /** Duration of the create in milliseconds, measured by the service. Null until the create is done. */
  createMs: number | null;
  /** Time of the create. */
  createdAt: string;
  /** Time when the sandbox was destroyed or failed. Null until then. */
  endedAt: string | null;
  /** Time of the hibernation. Null unless the sandbox is hibernated. */
  hibernatedAt: string | null;
  /**
   * Billed time in milliseconds, of all stretches of running that are over. While the sandbox runs, add the time since
   * `runningSince`. Null if the service does not send it.
   */
  billedMs: number | null;
  /** Start of the present stretch of running. Null if the sandbox does not run, or the service does not send it. */
  runningSince: string | null;
  /** Idle time in seconds after which the sandbox is destroyed, or hibernated with `autoHibernate`. 0 means never. */
  timeout: number;
  /** The `expiresAt` that a caller gave: when the sandbox is destroyed even if it is in use. Null without one. */
  endsAt: string | null;
  /**
   * Time when the sandbox is destroyed or hibernated if no call uses it before: the earliest of its idle timeout,
   * `maxLifetime` and `endsAt`. Null means never.
   */
  expiresAt: string | null;
  /** Seconds from creation after which the sandbox is destroyed even if it is in use. Null means no limit. */
  maxLifetime: number | null;
  /** True if the idle sandbox is hibernated instead of destroyed, and resumed by the next call that uses it. */
  autoHibernate: boolean;
  /** Where its processes start, if a caller chose it. Null means the working directory of the image. */
  cwd: string | null;
  /** The persistent disk at `/workspace`. Null without one. */
  disk: SandboxDiskInfo | null;
  /** Labels that the caller chose. */
  labels: Record<string, string>;
  /**
   * Id of the sandbox that was forked, or whose snapshot was restored. Null if the sandbox was created from an image.
   */
  parentId: string | null;
  /** Id of the team secret that keys the audit log. Null if the log has no entry yet. */
  auditKeyId: string | null;
  /** Reason why the sandbox failed or was destroyed. Null until then. */
  statusReason: string | null;
  /** Operation in progress, for example `hibernating`. Null if there is none. */
  operation: string | null;
}

/** The disk of a sandbox. */
export interface SandboxDiskInfo {
  /** Name of the disk. */
  name: string;
  /**
   * `attached`; `detaching` when the sandbox no longer uses the disk, but what it wrote is still being stored; `detached`
   * when the disk is free.
   */
  status: string;
  /** While `detaching`: bytes that are still to be stored. Null if unknown. */
  dirtyBytes: number | null;
  /** While `detaching`: why storing does not proceed. Null while it does. */
  waitsFor: string | null;
  /**
   * The version from which the sandbox continued, and when it was stored, if the earlier sandbox was lost with later
   * writes. Null otherwise.
   */
  recovered: { version: number; drainedAt: string } | null;
}

/** Resources that a destroyed sandbox used, and their cost. */
export interface DestroyResult {
  /** State of the sandbox after the call. */
  status: string;
  /** CPU time of the whole VM in milliseconds, read on the host. */
  cpuMs: number;
  /** Peak resident memory of the whole VM in bytes, read on the host. */
  memPeakBytes: number;
  /** Wall-clock time from create to destroy in milliseconds. */
  uptimeMs: number;
  /** Cost in cents: the exact amount, so fractions are normal. */
  costCents: number;
  /** The disk of the sandbox, after the call has waited for it. Absent without one. */
  disk?: SandboxDiskInfo;
}

export function parseSandboxInfo(value: unknown): SandboxInfo {
  const record = readObject(value, 'the sandbox record');
  return {
    id: readString(record, 'id'),
    status: readString(record, 'status'),
    name: readOptionalString(record, 'name'),
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
    billedMs: readOptionalNumber(record, 'billed_ms'),
    runningSince: readOptionalString(record, 'running_since'),
    timeout: readNumber(record, 'timeout'),
    endsAt: readOptionalString(record, 'ends_at'),
    expiresAt: readOptionalString(record, 'expires_at'),
    maxLifetime: readOptionalNumber(record, 'max_lifetime'),
    autoHibernate: readFlag(record, 'auto_hibernate'),
    cwd: readOptionalString(record, 'cwd'),
    disk: parseSandboxDisk(record['disk']),
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
  const disk = parseSandboxDisk(result['disk']);
  return {
    status: readString(result, 'status'),
    cpuMs: readNumber(result, 'cpu_ms'),
    memPeakBytes: readNumber(result, 'mem_peak_bytes'),
    uptimeMs: readNumber(result, 'uptime_ms'),
    costCents: readNumber(result, 'cost_cents'),
    ...(disk === null ? {} : { disk }),
  };
}

function parseSandboxDisk(value: unknown): SandboxDiskInfo | null {
  if (value === undefined || value === null) return null;
  const disk = readObject(value, 'the disk of the sandbox');
  return {
    name: readString(disk, 'name'),
    status: readString(disk, 'status'),
    dirtyBytes: readOptionalNumber(disk, 'dirty_bytes'),
    waitsFor: readOptionalString(disk, 'waits_for'),
    recovered: parseRecovered(disk['recovered']),
  };
}

function parseRecovered(value: unknown): SandboxDiskInfo['recovered'] {
  if (value === undefined || value === null) return null;
  const recovered = readObject(value, 'the recovered version');
  return { version: readNumber(recovered, 'version'), drainedAt: readString(recovered, 'drained_at') };
}

/** Returns true for a sandbox that never runs again. */
export function hasEnded({ status }: Pick<SandboxInfo, 'status'>): boolean {
  return status === 'destroyed' || status === 'failed';
}
