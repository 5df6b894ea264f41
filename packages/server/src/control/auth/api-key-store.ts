/** API keys in SQL. Only the SHA-256 of a key is stored; the key itself is shown once, when it is created. */
import type { KeyScope } from '@coppice/contract';
import { sql, type RawBuilder, type Selectable } from 'kysely';
import { newId } from '../../lib/new-id.ts';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { ApiKeyTable } from '../accounts/account-tables.ts';
import type { Database } from '../db/database.ts';
import { hashApiKey } from './hash-api-key.ts';

/** The owner and rights of an active key. */
export interface ActiveKey {
  id: string;
  owner: Owner;
  scope: KeyScope;
  reach: Reach;
  /** The person of the session whose key this is; null for other keys. */
  userId: string | null;
}

/**
 * Returns the key with this hash if it is active. Control asks on every request, so revocation takes effect at once.
 */
export async function findActiveKey(
  db: Database,
  sha256: Buffer,
): Promise<(ActiveKey & { sha256: Buffer }) | undefined> {
  const row = await selectActiveKeys(db).select('sha256').where('sha256', '=', sha256).executeTakeFirst();
  return row && { ...toActiveKey(row), sha256: row.sha256 };
}

/** Returns the key with this id if it is active. */
export async function findActiveKeyById(db: Database, id: string): Promise<ActiveKey | undefined> {
  const row = await selectActiveKeys(db).where('id', '=', id).executeTakeFirst();
  return row && toActiveKey(row);
}

/** Returns those of `ids` that are active, with their present reach. */
export async function listActiveKeys(db: Database, ids: readonly string[]): Promise<Map<string, Reach>> {
  const rows = await selectActiveKeys(db)
    .where(sql<boolean>`id = any(${ids}::text[])`)
    .execute();
  return new Map(rows.map((row) => [row.id, toActiveKey(row).reach]));
}

/**
 * SQL condition on `api_keys`: the key is neither revoked nor expired. That of a session also ends with the session, and
 * while the person is neither an owner of the organization nor a member of the team.
 */
export function isActiveKey(): RawBuilder<boolean> {
  const now = Date.now();
  return sql<boolean>`(
    api_keys.revoked_at IS NULL AND (api_keys.expires_at IS NULL OR api_keys.expires_at > ${now})
    AND (api_keys.session_id IS NULL OR EXISTS (
      SELECT FROM login_sessions
      JOIN memberships ON memberships.user_id = login_sessions.user_id
        AND memberships.organization_id = api_keys.organization_id
      WHERE login_sessions.id = api_keys.session_id AND login_sessions.expires_at > ${now}
        AND (memberships.role = 'owner' OR EXISTS (
          SELECT FROM team_members
          WHERE team_members.team_id = api_keys.team_id AND team_members.user_id = login_sessions.user_id)))))`;
}

/** SQL for `api_keys`: whether the key reaches only its team, as one of a session does unless its person is an owner now. */
export function isTeamOnly(): RawBuilder<boolean> {
  return sql<boolean>`(
    api_keys.team_only OR (api_keys.session_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM login_sessions
      JOIN memberships ON memberships.user_id = login_sessions.user_id
        AND memberships.organization_id = api_keys.organization_id
      WHERE login_sessions.id = api_keys.session_id AND memberships.role = 'owner')))`;
}

interface ActiveKeyRow {
  id: string;
  organization_id: string;
  team_id: string;
  scope: KeyScope;
  is_team_only: boolean;
  user_id: string | null;
}

function selectActiveKeys(db: Database) {
  const userId = sql<string | null>`(
    SELECT user_id FROM login_sessions WHERE login_sessions.id = api_keys.session_id)`;
  return db
    .selectFrom('api_keys')
    .select(['id', 'organization_id', 'team_id', 'scope'])
    .select([isTeamOnly().as('is_team_only'), userId.as('user_id')])
    .where(isActiveKey());
}

function toActiveKey({
  id,
  organization_id,
  team_id,
  scope,
  is_team_only,
  user_id,
}: ActiveKeyRow): ActiveKey {
  return {
    id,
    owner: { organizationId: organization_id, teamId: team_id },
    scope,
    reach: { organizationId: organization_id, onlyTeamId: is_team_only ? team_id : null },
    userId: user_id,
  };
}

/** Stores a key of a team, and returns it. Undefined: it is stored already, and stays unchanged, revoked or not. */
export async function ensureApiKey(
  db: Database,
  { organizationId, teamId }: Owner,
  key: string,
): Promise<Selectable<ApiKeyTable> | undefined> {
  return db
    .insertInto('api_keys')
    .values({ ...newKeyRow({ organizationId, teamId }, key), name: 'first' })
    .onConflict((conflict) => conflict.column('sha256').doNothing())
    .returningAll()
    .executeTakeFirst();
}

/** Builds the row of a new key. */
export function newKeyRow({ organizationId, teamId }: Owner, key: string) {
  return {
    id: newId('key'),
    organization_id: organizationId,
    team_id: teamId,
    sha256: hashApiKey(key),
    last4: key.slice(-4),
    created_at: Date.now(),
    revoked_at: null,
  };
}

/** Revokes the key from the next request on. */
export async function revokeApiKey(db: Database, key: string): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ revoked_at: Date.now() })
    .where('sha256', '=', hashApiKey(key))
    .where('revoked_at', 'is', null)
    .execute();
}
