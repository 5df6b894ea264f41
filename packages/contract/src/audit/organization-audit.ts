/**
 * The audit log of an organization: changes of its keys, members, teams, secrets, webhooks, built images and limits, and sign-ins of
 * its members. Its entries are chained like those of a sandbox (see audit.ts), with three differences:
 *
 *   - the seed is `coppice-organization-audit-v1:<organization id>`;
 *   - an entry has `organization_id` in place of `sandbox_id`, and the `actor` who caused it;
 *   - an entry names the secret that keys it (`audit_key_id`): the log never ends, but its secret can be rotated.
 */
import { z } from 'zod';
import { KEY_SCOPES } from '../accounts/team-keys.ts';
import { Role } from '../accounts/people.ts';
import { boundedIntText, FlagText, Timestamp } from '../fields.ts';
import { AuditHmac, MAX_AUDIT_SEQ } from './audit.ts';
import { canonicalize } from './canonical-json.ts';

const Team = { team_id: z.string() };
const Person = { user_id: z.string(), email: z.string() };
const Key = { id: z.string(), ...Team };
const KeyLimits = {
  name: z.string(),
  last4: z.string().describe('The last four characters of the key.'),
  scope: z.enum(KEY_SCOPES),
  team_only: z.boolean(),
  expires_at: Timestamp.nullable(),
};
const Webhook = z.object({
  id: z.string(),
  origin: z.string().describe('Scheme, host and port of the URL; the rest may be secret.'),
  types: z.array(z.string()),
  enabled: z.boolean(),
});
const AuditSecret = z.object({
  id: z.string(),
  team_id: z.string().nullable().describe("null for a secret of the organization's own log."),
});
const NamedSecret = z.object({ name: z.string(), version: z.int() });

/** Data of each kind of event. */
export const ORGANIZATION_AUDIT_EVENTS = {
  'organization.created': z.object({ name: z.string() }),
  'organization.renamed': z.object({ name: z.string() }),
  'api_key.created': z.object({ ...Key, ...KeyLimits }),
  'api_key.rotated': z.object({
    ...Key,
    ...KeyLimits,
    replaced: z.string().describe('Id of the key before.'),
    replaced_until: Timestamp.nullable().describe(
      'How long the key before stays valid; null if it was revoked.',
    ),
  }),
  'api_key.revoked': z.object({ ...Key, last4: z.string() }),
  'invitation.created': z.object({
    id: z.string(),
    role: Role,
    email: z.string().nullable(),
    expires_at: Timestamp,
  }),
  'invitation.revoked': z.object({ id: z.string() }),
  'member.joined': z.object({ ...Person, role: Role, invitation_id: z.string().nullable() }),
  'member.removed': z.object({ ...Person, role: Role }),
  'member.role_changed': z.object({ ...Person, role: Role, previous: Role }),
  'team.created': z.object({ ...Team, name: z.string() }),
  'team.renamed': z.object({ ...Team, name: z.string() }),
  'team.member_added': z.object({ ...Team, user_id: z.string() }),
  'team.member_removed': z.object({ ...Team, user_id: z.string() }),
  'session.started': z.object({ session_id: z.string() }).describe('A member signed in.'),
  'session.failed': z
    .object({
      user_id: z.string(),
      count: z.int().describe('Attempts with a wrong password since the entry before this one.'),
    })
    .describe('Someone tried to sign in as a member, with a wrong password.'),
  'session.ended': z.object({ session_id: z.string() }).describe('A member signed out.'),
  'password.changed': z
    .object({ user_id: z.string() })
    .describe("A member changed the password, which ends the person's other sessions."),
  'limits.changed': z
    .record(z.string(), z.int().nullable())
    .describe('The limits that the operator set; null: those of the service hold again.'),
  'budget.set': z.object({
    scope: z.string().describe('`organization` or the id of the team.'),
    month_cents: z.int(),
    alert_percents: z.array(z.int()),
  }),
  'budget.deleted': z.object({ scope: z.string() }),
  'credit.granted': z.object({ cents: z.int().describe('Negative if credit was taken back.') }),
  'webhook.created': Webhook,
  'webhook.changed': Webhook,
  'webhook.rotated': z.object({ id: z.string(), old_secret_until: Timestamp.nullable() }),
  'webhook.deleted': z.object({ id: z.string() }),
  'secret.stored': NamedSecret,
  'secret.deleted': NamedSecret,
  'registry.stored': z.object({ registry: z.string(), username: z.string() }),
  'registry.deleted': z.object({ registry: z.string() }),
  'image.built': z.object({
    image: z.string().describe('`built/name:tag`'),
    digest: z.string(),
    replaced: z.string().nullable().describe('Digest of the image that had the name before.'),
    build_id: z.string(),
    ...Team,
  }),
  'image.deleted': z.object({ image: z.string(), digest: z.string() }),
  'audit_secret.created': AuditSecret.describe('A secret was rotated, or replaced as it could not be read.'),
  'audit_secret.revealed': AuditSecret,
} as const satisfies Record<string, z.ZodType>;

export type OrganizationAuditEvent = keyof typeof ORGANIZATION_AUDIT_EVENTS;
export type OrganizationAuditData<E extends OrganizationAuditEvent> = z.infer<
  (typeof ORGANIZATION_AUDIT_EVENTS)[E]
>;

export const ORGANIZATION_AUDIT_EVENT_NAMES = Object.keys(
  ORGANIZATION_AUDIT_EVENTS,
) as OrganizationAuditEvent[];

/** `user`: a signed-in person; `operator`: a command on the server; `service`: no person; `unknown`: not signed in. */
export const AUDIT_ACTORS = ['user', 'api_key', 'operator', 'service', 'unknown'] as const;

export const AuditActor = z
  .object({
    type: z.enum(AUDIT_ACTORS),
    id: z.string().nullable().describe('Id of the person or of the API key; null for the others.'),
    address: z.string().nullable().describe('IP address of the client; null without one.'),
    session_key: z.string().optional().describe('Id of the key of a session with which the person did it.'),
  })
  .meta({ id: 'AuditActor' });
export type AuditActor = z.infer<typeof AuditActor>;

/** Commands on the server. */
export const OPERATOR_ACTOR: AuditActor = { type: 'operator', id: null, address: null };
/** The service itself. */
export const SERVICE_ACTOR: AuditActor = { type: 'service', id: null, address: null };

/** One line of `GET /v1/organization/audit`. */
export const OrganizationAuditEntry = z
  .object({
    seq: z.int().describe('Position in the chain, from 1.'),
    ts: Timestamp.describe('Never earlier than the `ts` of the previous entry.'),
    organization_id: z.string(),
    audit_key_id: z.string().describe('Id of the secret that keys this entry.'),
    event: z.enum(ORGANIZATION_AUDIT_EVENT_NAMES),
    actor: AuditActor,
    data: z.record(z.string(), z.unknown()).describe('Fields by event: see docs/reference/audit.md.'),
    hmac: AuditHmac,
  })
  .meta({ id: 'OrganizationAuditEntry' });
export type OrganizationAuditEntry = z.infer<typeof OrganizationAuditEntry>;

const MAX_ACTOR_ID = 200;

export const OrganizationAuditQuery = z.strictObject({
  head: FlagText.describe('Returns only the head: `seq` and `hmac` of the last entry.'),
  after: boundedIntText(0, MAX_AUDIT_SEQ, 0).describe('Begins after the entry with this `seq`.'),
  event: z
    .enum(ORGANIZATION_AUDIT_EVENT_NAMES, {
      error: 'must be one event of docs/reference/audit.md, for example api_key.created',
    })
    .optional()
    .describe('Only entries of this event. The chain of what is left cannot be verified.'),
  actor: z
    .string()
    .max(MAX_ACTOR_ID)
    .optional()
    .describe('Only entries that this person or API key caused, given by id. Not verifiable, either.'),
});
export type OrganizationAuditQuery = z.infer<typeof OrganizationAuditQuery>;

/** Returns the seed of the chain: the first entry is chained to it. */
export function buildOrganizationAuditSeed(organizationId: string): string {
  return `coppice-organization-audit-v1:${organizationId}`;
}

/** Returns the hashed text of an entry. `previous` is the `hmac` before it, or the seed. The hash is `sha256:<hex>`. */
export function buildOrganizationAuditText(
  previous: string,
  entry: Omit<OrganizationAuditEntry, 'hmac'>,
): string {
  const { seq, ts, organization_id, audit_key_id, event, actor, data } = entry;
  return `${previous}\n${canonicalize({ seq, ts, organization_id, audit_key_id, event, actor, data })}`;
}
