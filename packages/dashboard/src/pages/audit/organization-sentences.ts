/** The log of an organization in words. A newer service may have events and fields that this page does not know. */
import type { OrganizationAuditEntry } from '../../../../sdk/src/index.ts';
import { formatCents, formatMoment, formatNumber } from '../../ui/format.ts';
import type { NameOf } from './names.ts';
import { quote, say, toText, when, type Sentence } from './sentence.ts';

type Data = Readonly<Record<string, unknown>>;

const SENTENCES: Readonly<Record<string, (data: Data, nameOf: NameOf) => Sentence>> = {
  'organization.created': ({ name }) => say`Created the organization ${quote(name)}`,
  'organization.renamed': ({ name }) => say`Renamed the organization to ${quote(name)}`,
  'api_key.created': (data, nameOf) =>
    say`Created the API key ${key(data, nameOf)} of ${quote(nameOf(data['team_id']))}${limits(data)}`,
  'api_key.rotated': (data, nameOf) =>
    say`Rotated the API key ${key(data, nameOf)}: the one before ${
      data['replaced_until'] === null ? 'is revoked' : say`works until ${moment(data['replaced_until'])}`
    }`,
  'api_key.revoked': (data, nameOf) => say`Revoked the API key ${key(data, nameOf)}`,
  'invitation.created': ({ role, email, expires_at }) =>
    say`Invited ${email === null ? 'any holder of a link' : quote(email)} as ${quote(role)}, until ${moment(expires_at)}`,
  'invitation.revoked': ({ id }) => say`Revoked the invitation ${quote(id)}`,
  'member.joined': ({ email, role }) => say`${quote(email)} joined as ${quote(role)}`,
  'member.removed': ({ email, role }) => say`Removed the ${quote(role)} ${quote(email)}`,
  'member.role_changed': ({ email, role, previous }) =>
    say`Made ${quote(email)} ${quote(role)}; before: ${quote(previous)}`,
  'team.created': ({ name }) => say`Created the team ${quote(name)}`,
  'team.renamed': ({ name }) => say`Renamed a team to ${quote(name)}`,
  'team.member_added': ({ user_id, team_id }, nameOf) =>
    say`Added ${quote(nameOf(user_id))} to the team ${quote(nameOf(team_id))}`,
  'team.member_removed': ({ user_id, team_id }, nameOf) =>
    say`Removed ${quote(nameOf(user_id))} from the team ${quote(nameOf(team_id))}`,
  'session.started': () => say`Signed in`,
  'session.ended': () => say`Ended a session`,
  'session.failed': ({ user_id, count: times }, nameOf) =>
    say`Tried to sign in as ${quote(nameOf(user_id))} with a wrong password${when(
      typeof times === 'number' && times > 1,
      say`, ${toText(times)} times`,
    )}`,
  'password.changed': ({ user_id }, nameOf) => say`Changed the password of ${quote(nameOf(user_id))}`,
  'limits.changed': (data) => say`Changed the limits ${quote(Object.keys(data).join(', '))}`,
  'credit.granted': ({ cents }) =>
    typeof cents === 'number' && cents < 0
      ? say`Took back ${formatCents(-cents)} of credit`
      : say`Granted ${typeof cents === 'number' ? formatCents(cents) : quote(cents)} of credit`,
  'budget.set': ({ scope, month_cents }, nameOf) =>
    say`Set the budget of ${budgetOf(scope, nameOf)} to ${typeof month_cents === 'number' ? formatCents(month_cents) : quote(month_cents)} a month`,
  'budget.deleted': ({ scope }, nameOf) => say`Deleted the budget of ${budgetOf(scope, nameOf)}`,
  'webhook.created': ({ origin }) => say`Created a webhook to ${quote(origin)}`,
  'webhook.changed': ({ origin, enabled }) =>
    say`Changed the webhook to ${quote(origin)}${when(enabled === false, say`: it is off`)}`,
  'webhook.rotated': ({ id }) => say`Rotated the secret of the webhook ${quote(id)}`,
  'webhook.deleted': ({ id }) => say`Deleted the webhook ${quote(id)}`,
  'secret.stored': ({ name, version }) => say`Stored version ${quote(version)} of the secret ${quote(name)}`,
  'secret.deleted': ({ name }) => say`Deleted the secret ${quote(name)}`,
  'registry.stored': ({ registry, username }) =>
    say`Stored the login ${quote(username)} for the registry ${quote(registry)}`,
  'registry.deleted': ({ registry }) => say`Deleted the login for the registry ${quote(registry)}`,
  'image.built': ({ image, replaced }) =>
    say`Built the image ${quote(image)}${when(typeof replaced === 'string', say`, in place of an earlier one`)}`,
  'image.deleted': ({ image }) => say`Deleted the image ${quote(image)}`,
  'audit_secret.created': ({ team_id }, nameOf) => say`Made a new secret for ${logOf(team_id, nameOf)}`,
  'audit_secret.revealed': ({ team_id }, nameOf) => say`Read a secret of ${logOf(team_id, nameOf)}`,
};

const ACTORS: Readonly<Record<string, string>> = {
  operator: 'Operator of the service',
  service: 'The service',
  unknown: 'Not signed in',
};

/** Describes an entry. The actor is the subject that its sentence leaves out. */
export function describeOrganizationEntry(
  { event, data }: Pick<OrganizationAuditEntry, 'event' | 'data'>,
  nameOf: NameOf,
): Sentence {
  const describe = Object.hasOwn(SENTENCES, event) ? SENTENCES[event] : undefined;
  return describe === undefined ? say`${quote(event)} ${quote(data)}` : describe(data, nameOf);
}

/** Names the actor of an entry. */
export function describeActor(actor: Data, nameOf: NameOf): Sentence {
  const { type, id } = actor;
  if (typeof type === 'string' && Object.hasOwn(ACTORS, type)) return [ACTORS[type] ?? ''];
  return say`${when(type === 'api_key', say`Key `)}${quote(nameOf(id))}`;
}

function key(data: Data, nameOf: NameOf): Sentence {
  const { id, name, last4 } = data;
  return say`${quote(name ?? nameOf(id))} (${quote(`…${toText(last4)}`)})`;
}

function limits({ scope, team_only, expires_at }: Data): Sentence {
  return say`${when(scope === 'read', say`, which only reads`)}${when(
    team_only === true,
    say`, only for the team`,
  )}${when(typeof expires_at === 'string', say`, until ${moment(expires_at)}`)}`;
}

function logOf(teamId: unknown, nameOf: NameOf): Sentence {
  return teamId === null ? ['this log'] : say`the logs of the team ${quote(nameOf(teamId))}`;
}

function budgetOf(scope: unknown, nameOf: NameOf): Sentence {
  return scope === 'organization' ? ['the organization'] : say`the team ${quote(nameOf(scope))}`;
}

function moment(time: unknown): string {
  const ms = typeof time === 'string' ? Date.parse(time) : Number.NaN;
  return Number.isNaN(ms) ? `an unknown time` : formatMoment(ms);
}

/** Returns an event as words, for example `api key: created`. */
export function nameEvent(event: string): string {
  return event.replaceAll('_', ' ').replace('.', ': ');
}

export function countEntries(count: number): string {
  return `${formatNumber(count)} ${count === 1 ? 'entry' : 'entries'}`;
}
