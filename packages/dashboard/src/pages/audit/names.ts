/** Names of the people, teams and keys that a log of an organization mentions by their ids. */
import type { OrganizationAuditEntry } from '../../../../sdk/src/index.ts';
import { toText } from './sentence.ts';

/** Returns the name of an id; the id itself if the log does not say more. */
export type NameOf = (id: unknown) => string;

/** Gathers names from the log itself, which also knows those that are gone, and from the present people and teams. */
export function gatherNames(
  entries: readonly OrganizationAuditEntry[],
  present: readonly { id: string; name: string }[],
): NameOf {
  const names = new Map<string, string>();
  for (const { event, data } of entries) {
    if (event.startsWith('member.')) note(names, data['user_id'], data['email']);
    if (event.startsWith('team.')) note(names, data['team_id'], data['name']);
    if (event.startsWith('api_key.')) note(names, data['id'], data['name']);
  }
  for (const { id, name } of present) names.set(id, name);
  return (id) => (typeof id === 'string' ? (names.get(id) ?? id) : toText(id));
}

/** An entry without a name says nothing about it. */
function note(names: Map<string, string>, id: unknown, name: unknown): void {
  if (typeof id === 'string' && typeof name === 'string' && name !== '') names.set(id, name);
}
