/** Wire forms of sandboxes: create, restore and change requests, the record, and the answer to a destroy. */
import { z } from 'zod';
import { Credentials, CredentialsV2 } from '../egress/credentials.ts';
import { DiskName, DiskSnapshotName, SandboxDisk } from '../disks/disks.ts';
import { boundedInt, boundedIntText, boundedText, Timestamp } from '../fields.ts';
import { SANDBOX_OPERATIONS, SANDBOX_STATES, STATUS_REASONS } from './lifecycle.ts';
import { NetworkProfileName, NetworkRules } from '../network-policy/network-schemas.ts';
import {
  AutoHibernate,
  DEFAULT_IDLE_TIMEOUT_S,
  ExpiresAt,
  IdleTimeout,
  Labels,
  Lifetime,
  SandboxCwd,
  SandboxEnv,
  SandboxName,
} from './settings.ts';

/** The network policy of the sandbox, and the secrets that the host adds to its requests. */
const EGRESS_FIELDS = {
  network: NetworkRules.optional(),
  network_profile: NetworkProfileName.optional().describe(
    'A profile of GET /v1/network-profiles; excludes network.',
  ),
  credentials: Credentials.optional().describe(
    'Secrets by service. The host adds the secret to every request to the service.',
  ),
  credentials_v2: CredentialsV2.optional().describe(
    'As credentials, but limited by rules to methods and paths.',
  ),
};

/** Shape of a sandbox whose create names none. */
export const DEFAULT_SHAPE = { vcpus: 1, mem_mib: 1024, disk_mib: 4096 } as const;

/** The vCPUs, memory and scratch disk of a sandbox. */
export const SandboxShape = z
  .strictObject({
    vcpus: boundedInt(1, 32).default(DEFAULT_SHAPE.vcpus),
    mem_mib: boundedInt(128, 262_144, 'MiB').default(DEFAULT_SHAPE.mem_mib),
    disk_mib: boundedInt(64, 1_048_576, 'MiB').default(DEFAULT_SHAPE.disk_mib),
  })
  .meta({ id: 'SandboxShape' });

/** The disk at `/workspace`. Without one, `/workspace` is a directory on the scratch disk. */
const DISK_FIELDS = {
  disk: DiskName.optional().describe(
    'Disk that is mounted at `/workspace`. With fork_from_disk: name of the new disk; default: the name of the source ' +
      'with a number.',
  ),
  fork_from_disk: DiskName.optional().describe(
    'Makes a new disk from a snapshot of this one, and mounts it.',
  ),
  disk_snapshot: DiskSnapshotName.optional().describe('The snapshot of fork_from_disk; required with it.'),
};

/** Body of `POST /v1/runs`. */
export const CreateSandboxRequest = z
  .strictObject({
    image: boundedText(1, 512).describe(
      'Pinned OCI image reference: a tag other than latest, lts, stable, or a digest.',
    ),
    ...SandboxShape.shape,
    name: SandboxName.optional().describe(
      'Chosen by the caller. No other sandbox of the team may have it until this one ends.',
    ),
    timeout: IdleTimeout.default(DEFAULT_IDLE_TIMEOUT_S),
    max_lifetime: Lifetime.optional(),
    expires_at: ExpiresAt.optional(),
    labels: Labels.default({}),
    auto_hibernate: AutoHibernate.optional(),
    env: SandboxEnv.optional(),
    cwd: SandboxCwd.optional(),
    ...EGRESS_FIELDS,
    ...DISK_FIELDS,
  })
  .refine((body) => body.fork_from_disk === undefined || body.disk_snapshot !== undefined, {
    path: ['disk_snapshot'],
    error: 'names the snapshot that is forked',
  })
  .refine((body) => body.disk_snapshot === undefined || body.fork_from_disk !== undefined, {
    path: ['fork_from_disk'],
    error: 'names the disk of disk_snapshot',
  })
  .meta({ id: 'CreateSandboxRequest' });
export type CreateSandboxRequest = z.infer<typeof CreateSandboxRequest>;

/**
 * Body of `POST /v1/runs/restore`. An omitted field keeps the value of the sandbox of which the snapshot was taken,
 * except the name and expires_at, which are not inherited, and credentials: only those in the request are granted.
 */
export const RestoreSandboxRequest = z
  .strictObject({
    snapshot_id: boundedText(1, 64),
    name: SandboxName.optional().describe('As in a create. Default: none.'),
    timeout: IdleTimeout.optional(),
    max_lifetime: Lifetime.nullable().optional().describe('null for no maximum.'),
    expires_at: ExpiresAt.optional(),
    labels: Labels.optional(),
    auto_hibernate: AutoHibernate.optional(),
    env: SandboxEnv.optional().describe('Replaces all variables.'),
    cwd: SandboxCwd.nullable().optional().describe('null for that of the image.'),
    ...EGRESS_FIELDS,
    disk: DiskName.optional().describe(
      'Only if the sandbox had a disk: name of the new disk, which is forked from the one of that moment. Default: the ' +
        'name of that disk with a number.',
    ),
  })
  .meta({ id: 'RestoreSandboxRequest' });
export type RestoreSandboxRequest = z.infer<typeof RestoreSandboxRequest>;

export const SandboxRecord = z
  .object({
    id: z.string().meta({ example: 'run0123456789abcdef0123' }),
    status: z.enum(SANDBOX_STATES),
    status_reason: z.enum(STATUS_REASONS).nullable().describe('Why the sandbox ended; null until then.'),
    operation: z.enum(SANDBOX_OPERATIONS).nullable().describe('The operation that runs now.'),
    name: z.string().nullable().describe('Chosen by the caller; null without one.'),
    team_id: z.string().describe('The team that owns the sandbox: that of the key that created it.'),
    image: z.string().describe('Resolved reference; until it is resolved, as requested.'),
    region: z.string(),
    vcpus: z.int(),
    mem_mib: z.int(),
    disk_mib: z.int(),
    timeout: z
      .int()
      .describe(
        'Idle seconds after which the sandbox is destroyed (with auto_hibernate: hibernated); 0 for never.',
      ),
    max_lifetime: z
      .int()
      .nullable()
      .describe('Seconds after creation at which the sandbox is destroyed, whatever requests are open.'),
    ends_at: Timestamp.nullable().describe(
      'The expires_at of a request: when the sandbox is destroyed, whatever requests are open; null without one.',
    ),
    expires_at: Timestamp.nullable().describe(
      'When the sandbox is destroyed or hibernated if no further request uses it: the earliest of its idle timeout, ' +
        'max_lifetime and ends_at; null if never.',
    ),
    auto_hibernate: z.boolean(),
    cwd: z.string().nullable().describe('Chosen by the caller; null for the directory of the image.'),
    disk: SandboxDisk.nullable().describe('The disk at `/workspace`; null without one.'),
    labels: z.record(z.string(), z.string()),
    parent_id: z
      .string()
      .nullable()
      .describe('The sandbox from which this one was forked, or of whose snapshot it was restored.'),
    audit_key_id: z
      .string()
      .nullable()
      .describe(
        'Id of the team secret that keys the audit chain. For a sandbox older than audit logs: null until its first entry.',
      ),
    create_ms: z
      .number()
      .nullable()
      .describe('Server-side duration of the create; null until it has finished.'),
    created_at: Timestamp,
    hibernated_at: Timestamp.nullable().describe('When the current hibernation began.'),
    billed_ms: z
      .number()
      .describe(
        'Billed time: all stretches of running that are over. The present one adds the time since its start.',
      ),
    running_since: Timestamp.nullable().describe(
      'When the present stretch of running began; null if none does.',
    ),
    ended_at: Timestamp.nullable(),
  })
  .meta({ id: 'Sandbox' });
export type SandboxRecord = z.infer<typeof SandboxRecord>;

/** Answer of `DELETE /v1/runs/{id}`. */
export const DestroyResult = z
  .object({
    status: z.literal('destroyed'),
    cpu_ms: z.number().describe('CPU time of the VM process, read on the host.'),
    mem_peak_bytes: z.number().describe('Peak resident memory of the VM process, read on the host.'),
    uptime_ms: z.number(),
    cost_cents: z.number().describe('Exact amount; fractions are normal.'),
    disk: SandboxDisk.optional().describe('Present if the sandbox had a disk when it was destroyed.'),
  })
  .meta({ id: 'DestroyResult' });
export type DestroyResult = z.infer<typeof DestroyResult>;

export const LabelFilter = z
  .string()
  .regex(/^[^:]+:/, { error: 'must be name:value' })
  .refine((text) => !text.includes('\0') && text.isWellFormed(), { error: 'must be valid text' });
const StatusFilter = z.enum(SANDBOX_STATES, { error: `must be one of ${SANDBOX_STATES.join(', ')}` });

/** Query of `GET /v1/runs`. `label` and `status` may be repeated: all labels must match, any status. */
export const ListSandboxesQuery = z.strictObject({
  limit: boundedIntText(1, 500, 100),
  cursor: z.string().max(256).optional(),
  name: SandboxName.optional().describe(
    'Only sandboxes with this name: of each team, one at most that has not ended.',
  ),
  label: z.union([LabelFilter.transform((one) => [one]), z.array(LabelFilter).max(8)]).optional(),
  status: z.union([StatusFilter.transform((one) => [one]), z.array(StatusFilter).max(8)]).optional(),
  team: boundedText(1, 128).optional().describe('Only sandboxes of this team; id or name of the team.'),
});
export type ListSandboxesQuery = z.infer<typeof ListSandboxesQuery>;
