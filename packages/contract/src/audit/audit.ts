/**
 * The audit log of a sandbox: its entries and their hash chain.
 *
 *     "coppice-audit-v1:<sandbox id>" ─► hmac 1 ─► hmac 2 ─► …          hmac n = HMAC-SHA256(team secret,
 *                                          ▲          ▲                     hmac n-1 + "\n" + JCS(entry n without its hmac))
 *                                       entry 1    entry 2
 *
 * Each entry carries the hash of all entries before it. An entry that is altered, removed, moved or inserted breaks the
 * chain, and any prefix can be verified without the rest.
 */
import { z } from 'zod';
import { canonicalize } from './canonical-json.ts';
import { CredentialEndpoint } from '../egress/credentials.ts';
import { boundedIntText, FlagText, Timestamp } from '../fields.ts';
import { FILE_LINK_METHODS } from '../sandbox/file-links.ts';
import { STATUS_REASONS } from '../sandbox/lifecycle.ts';

const Shape = { image: z.string(), vcpus: z.int(), mem_mib: z.int(), disk_mib: z.int() };
const Usage = { cpu_ms: z.number(), mem_peak_bytes: z.number(), uptime_ms: z.number() };
const Command = z
  .string()
  .describe('Verbatim: everything that the caller writes into a command is recorded.');
const CommandId = z.string().describe('Id of a command that outlives its client.');
const Path = z
  .string()
  .describe('As in the request; a relative path is appended to the cwd of the sandbox, if it has one.');
const Policy = z.object({
  policy: z.string().describe('The profile that the policy was built from, else `unrestricted` or `rules`.'),
  default: z.enum(['allow', 'deny']).describe('The verdict for destinations that no rule matches.'),
  rules: z.int().describe('Number of rules.'),
  allow: z.array(z.string()).optional().describe('Omitted when there are more than 100 rules in total.'),
  deny: z.array(z.string()).optional().describe('Omitted whenever `allow` is.'),
  sha256: z.string().describe('Hash of the canonical JSON of {default, allow, deny}.'),
});
const Size = z.int().describe('Bytes.');
const Recursive = z.boolean().describe('Whether everything in the directory was meant, too.');
const Archive = z.string().optional().describe('Format, when a whole directory was moved as an archive.');
const Complete = z
  .literal(false)
  .optional()
  .describe('Present when the request failed in the sandbox: a part of it may have been done.');

/** Data of each kind of event. A kind has the fields of the specification, and may have more. */
export const AUDIT_EVENTS = {
  'sandbox.created': z.object({
    ...Shape,
    name: z.string().optional().describe('Omitted without one.'),
    parent: z
      .string()
      .optional()
      .describe('The sandbox from which this one was forked, or of which the snapshot was taken.'),
    snapshot_id: z.string().optional().describe('The snapshot from which the sandbox was restored.'),
    network: Policy.optional().describe('Omitted when nothing is restricted.'),
  }),
  'sandbox.forked': z.object({ parent: z.string(), image: z.string(), child: z.string() }),
  'sandbox.snapshot': z.object({ snapshot_id: z.string() }),
  'sandbox.hibernated': z.object({}),
  'sandbox.resumed': z.object({}),
  'sandbox.rolled_back': z.object({
    snapshot_id: z.string(),
    rollback_id: z.string().optional().describe('Id of this rollback; missing in logs of earlier versions.'),
  }),
  'disk.attached': z.object({
    disk: z.string().describe('Name of the disk.'),
    version: z.int().optional().describe('The version from which the sandbox continued; omitted if unknown.'),
    recovered: z
      .boolean()
      .optional()
      .describe('True if an earlier sandbox was lost with writes that were not stored.'),
  }),
  'disk.detached': z.object({
    disk: z.string(),
    version: z.int().optional().describe('The version that a hibernated sandbox resumes with.'),
  }),
  'disk.snapshot': z.object({ disk: z.string(), snapshot: z.string(), version: z.int() }),
  'sandbox.destroyed': z.object({ ...Usage, reason: z.enum(STATUS_REASONS) }),
  'sandbox.failed': z.object({ ...Usage, reason: z.enum(STATUS_REASONS) }),
  'exec.start': z.object({ command: Command, command_id: CommandId.optional() }),
  'exec.exit': z.object({
    command: Command,
    exit_code: z
      .int()
      .nullable()
      .describe('null when the exit was not observed: the command was refused, killed, or lost.'),
    duration_ms: z.int(),
    command_id: CommandId.optional(),
    start_seq: z
      .int()
      .optional()
      .describe(
        'The `seq` of the matching exec.start. Absent if that is in the log of the sandbox that was copied.',
      ),
  }),
  'terminal.opened': z.object({ command: Command.optional() }),
  'terminal.closed': z.object({
    exit_code: z.int().nullable(),
    duration_ms: z.int(),
    start_seq: z.int().describe('The `seq` of the matching terminal.opened.'),
  }),
  'ssh.opened': z.object({
    user: z
      .string()
      .optional()
      .describe('As in the request. Omitted without one: then it is the image’s USER.'),
  }),
  'ssh.closed': z.object({
    exit_code: z.int().nullable().describe('Of the SSH server; null when its end was not observed.'),
    duration_ms: z.int(),
    start_seq: z.int().describe('The `seq` of the matching ssh.opened.'),
  }),
  'file.upload': z.object({
    path: Path,
    size: Size.nullable().describe('null for an upload that is not complete.'),
    archive: Archive,
    entries: z.int().nullable().optional().describe('Of an archive; null as for `size`.'),
    complete: Complete,
  }),
  'file.download': z.object({
    path: Path,
    size: Size.nullable().describe(
      'Bytes to be sent when the download began; null for an archive, or a file whose size is unknown.',
    ),
    archive: Archive,
  }),
  'file.link': z
    .object({ path: Path, method: z.enum(FILE_LINK_METHODS), expires_at: Timestamp })
    .describe('A URL was created that reads or writes the file without an API key.'),
  'file.mkdir': z.object({ path: Path, complete: Complete }),
  'file.move': z.object({ path: Path, to: Path, complete: Complete }),
  'file.remove': z.object({ path: Path, recursive: Recursive, complete: Complete }),
  'file.chmod': z.object({ path: Path, mode: z.string(), recursive: Recursive, complete: Complete }),
  'file.chown': z.object({ path: Path, user: z.string(), recursive: Recursive, complete: Complete }),
  'credential.proxied': z.object({
    service: z.string(),
    method: z.string(),
    path: z.string().describe('Path without the query.'),
    status: z.int(),
  }),
  'network.blocked': z.object({
    domain: z.string().optional(),
    ip: z.string().optional(),
    port: z.int().optional(),
    reason: z.string(),
    count: z.int().optional().describe('Number of events with the same data that this entry stands for.'),
  }),
  'settings.changed': z
    .object({
      name: z.string().nullable(),
      labels: z.record(z.string(), z.string()),
      timeout: z.int(),
      auto_hibernate: z.boolean(),
      max_lifetime: z.int().nullable(),
      expires_at: Timestamp.nullable(),
      cwd: z.string().nullable(),
      env: z.array(z.string()).describe('Names of all variables; never their values.'),
    })
    .partial()
    .describe('The settings that were changed, with their new values.'),
  'policy.changed': Policy,
  'credentials.changed': z.object({
    credentials: z
      .array(
        z.object({
          service: z.string(),
          endpoints: z.array(CredentialEndpoint).nullable(),
          secret: z
            .string()
            .optional()
            .describe('Name of the secret of the organization, if it has the value.'),
        }),
      )
      .describe('All credentials granted from now on.'),
  }),
  'credentials.rotated': z
    .object({
      credentials: z.array(z.object({ service: z.string(), secret: z.string(), version: z.int() })),
    })
    .describe('The host signs requests with a new version of a secret of the organization.'),
} as const satisfies Record<string, z.ZodType>;

export type AuditEvent = keyof typeof AUDIT_EVENTS;
export type AuditData<E extends AuditEvent> = z.infer<(typeof AUDIT_EVENTS)[E]>;

export const AUDIT_EVENT_NAMES = Object.keys(AUDIT_EVENTS) as AuditEvent[];

/** Whether an event ends the log: a log accepts no entries after it. */
export function isLastEvent(event: AuditEvent): boolean {
  return event === 'sandbox.destroyed' || event === 'sandbox.failed';
}

export const AuditHmac = z.string().meta({ example: `sha256:${'0'.repeat(64)}` });

/** One line of `GET /v1/runs/{id}/audit`. */
export const AuditEntry = z
  .object({
    seq: z.int().describe('Position in the chain, from 1.'),
    ts: Timestamp.describe('Never earlier than the `ts` of the previous entry.'),
    sandbox_id: z.string(),
    event: z.enum(AUDIT_EVENT_NAMES),
    data: z.record(z.string(), z.unknown()).describe('Fields by event: see docs/reference/audit.md.'),
    hmac: AuditHmac,
  })
  .meta({ id: 'AuditEntry' });
export type AuditEntry = z.infer<typeof AuditEntry>;

/** Answer of `GET /v1/runs/{id}/audit?head=true`. */
export const AuditHead = z
  .object({
    seq: z.int().describe('`seq` of the last entry; 0 when there is none yet.'),
    hmac: AuditHmac.nullable().describe('`hmac` of the last entry; null when there is none yet.'),
  })
  .meta({ id: 'AuditHead' });
export type AuditHead = z.infer<typeof AuditHead>;

/** The database column is a 32-bit integer. */
export const MAX_AUDIT_SEQ = 2 ** 31 - 1;

export const AuditQuery = z.strictObject({
  follow: FlagText.describe('Keeps sending entries as they are written, until the sandbox has ended.'),
  head: FlagText.describe('Returns only the head: `seq` and `hmac` of the last entry.'),
  after: boundedIntText(0, MAX_AUDIT_SEQ, 0).describe('Begins after the entry with this `seq`.'),
});
export type AuditQuery = z.infer<typeof AuditQuery>;

/** Returns the seed of the chain: the first entry is chained to it. */
export function buildAuditSeed(sandboxId: string): string {
  return `coppice-audit-v1:${sandboxId}`;
}

/** Returns the hashed text of an entry. `previous` is the `hmac` before it, or the seed. The hash is `sha256:<hex>`. */
export function buildAuditText(previous: string, entry: Omit<AuditEntry, 'hmac'>): string {
  const { seq, ts, sandbox_id, event, data } = entry;
  return `${previous}\n${canonicalize({ seq, ts, sandbox_id, event, data })}`;
}
