/**
 * The signed-in person, the organization and team that the page shows, and the client that calls `/v1` for them.
 *
 *     loading ──► signed_out ──► ready ◄──► expired (the page stays, and asks for the password)
 *        └──────────────────────►  │
 *                                  └──► signed_out
 *
 * The client's key is derived from the session: it ends with it, and is kept nowhere but in this page's memory.
 */
import { computed, signal } from '@preact/signals';
import type { AccountRecord } from '../../../contract/src/accounts/people.ts';
import { Coppice } from '../../../sdk/src/index.ts';
import { AccountError, callAccount, onUnauthorized } from './account-calls.ts';
import { fetchNoted } from './connection.ts';
import { recall, remember } from './remembered.ts';

export type SessionState = 'loading' | 'signed_out' | 'ready' | 'expired' | 'unreachable';
export type OrganizationInfo = AccountRecord['organizations'][number];
export type TeamInfo = OrganizationInfo['teams'][number];

/** Where the page is: all that it shows belongs to this team, or to its organization. */
export interface Place {
  organization: OrganizationInfo;
  /** Undefined for a member without a team, who has no key. */
  team: TeamInfo | undefined;
}

const ORGANIZATION = 'organization';
const TEAM = 'team';

export const sessionState = signal<SessionState>('loading');
export const account = signal<AccountRecord | undefined>(undefined);
export const place = signal<Place | undefined>(undefined);
export const client = signal<Coppice | undefined>(undefined);

/** Whether the person operates the service: see all organizations, and the host. */
export const isOperator = computed(() => account.value?.is_operator === true);
export const isOwner = computed(() => place.value?.organization.role === 'owner');
/** Path of the organization below `/account`. */
export const organizationPath = computed(() => `/organizations/${place.value?.organization.id ?? ''}`);
/** Path of the team below `/account`. */
export const teamPath = computed(() => `${organizationPath.value}/teams/${place.value?.team?.id ?? ''}`);

/** Returns the name of a team of the organization; its id if the person does not see it. */
export function teamNameOf(id: string): string {
  return place.value?.organization.teams.find((team) => team.id === id)?.name ?? id;
}

/** Reads who is signed in. Resolves when `sessionState` is known. */
export async function loadSession(): Promise<void> {
  onUnauthorized(noteExpiry);
  try {
    await enter(await callAccount<AccountRecord>('GET', '/me'));
  } catch (error) {
    if (!(error instanceof AccountError)) throw error;
    sessionState.value = error.status === 401 ? 'signed_out' : 'unreachable';
  }
}

/** Shows what an account may see, after a sign-in, a sign-up or an accepted invitation. */
export async function enter(record: AccountRecord): Promise<void> {
  const isSamePerson = account.value?.user.id === record.user.id;
  account.value = record;
  const wanted = isSamePerson ? place.value?.organization.id : undefined;
  await open(
    find(record.organizations, wanted ?? recall(ORGANIZATION)),
    isSamePerson ? place.value?.team?.id : undefined,
  );
}

/** Shows another organization, or another team of it. */
export async function open(organization: OrganizationInfo | undefined, teamId?: string): Promise<void> {
  if (organization === undefined) {
    place.value = undefined;
    client.value = undefined;
    sessionState.value = 'ready';
    return;
  }
  const team = find(organization.teams, teamId ?? recall(TEAM));
  const opened = { organization, team };
  const connected = team === undefined ? undefined : await connect(opened);
  remember(ORGANIZATION, organization.id);
  if (team !== undefined) remember(TEAM, team.id);
  place.value = opened;
  client.value = connected;
  sessionState.value = 'ready';
}

/** Reads the account again, after a change of organizations, teams or roles. */
export async function refreshAccount(): Promise<void> {
  await enter(await callAccount<AccountRecord>('GET', '/me'));
}

export async function signOut(): Promise<void> {
  await callAccount('POST', '/sign-out');
  forget();
}

/** Forgets everything of the person. */
export function forget(): void {
  account.value = undefined;
  place.value = undefined;
  client.value = undefined;
  sessionState.value = 'signed_out';
}

function find<Item extends { id: string }>(
  items: readonly Item[],
  id: string | null | undefined,
): Item | undefined {
  return items.find((item) => item.id === id) ?? items[0];
}

async function connect({ organization, team }: Place): Promise<Coppice> {
  const path = `/organizations/${organization.id}/teams/${team?.id ?? ''}/session-key`;
  const fetchKey = async (): Promise<string> => (await callAccount<{ key: string }>('POST', path)).key;
  let key = await fetchKey();
  const fetchWithKey = async (url: string, init: RequestInit): Promise<Response> => {
    const response = await fetchNoted(url, withKey(init, key));
    if (response.status !== 401) return response;
    // A new sign-in has another key, also one in another tab. A stream as a body cannot be sent twice.
    const renewed = await fetchKey().catch(() => undefined);
    if (renewed === undefined || renewed === key || init.body instanceof ReadableStream) return response;
    key = renewed;
    return fetchNoted(url, withKey(init, key));
  };
  return new Coppice({ apiKey: key, baseUrl: location.origin, allowPlainHttp: true, fetch: fetchWithKey });
}

function withKey(init: RequestInit, key: string): RequestInit {
  const headers = new Headers(init.headers);
  headers.set('authorization', `Bearer ${key}`);
  return { ...init, headers };
}

/** Called when the service says that the session has ended. The page stays as it is. */
export function noteExpiry(): void {
  if (sessionState.value === 'ready') sessionState.value = 'expired';
}
