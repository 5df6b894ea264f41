/** API keys in SQL. Only the SHA-256 of a key is stored; the key itself is shown once, when it is created. */
import type { KeyScope } from '@coppice/contract';
import { sql, type Expression, type ExpressionBuilder, type Selectable, type SqlBool } from 'kysely';
import { newId } from '../../lib/new-id.ts';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { ApiKeyTable } from '../accounts/account-tables.ts';
import type { Database } from '../db/database.ts';
import type { Tables } from '../schema/tables.ts';
import { hashApiKey } from './hash-api-key.ts';

/** The owner and rights of an active key. */
export interface ActiveKey {
  id: string;
  owner: Owner;
  scope: KeyScope;
  reach: Reach;
}

const ACTIVE_KEY = ['id', 'organization_id', 'team_id', 'scope', 'team_only'] as const;
type ActiveKeyRow = Pick<Selectable<ApiKeyTable>, (typeof ACTIVE_KEY)[number]>;

/**
 * Returns the key with this hash if it is active. Control asks on every request, so revocation takes effect at once.
 */
export async function findActiveKey(
  db: Database,
  sha256: Buffer,
): Promise<(ActiveKey & { sha256: Buffer }) | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select([...ACTIVE_KEY, 'sha256'])
    .where('sha256', '=', sha256)
    .where(isActiveKey)
    .executeTakeFirst();
  return row && { ...toActiveKey(row), sha256: row.sha256 };
}

/** Returns the key with this id if it is active. */
export async function findActiveKeyById(db: Database, id: string): Promise<ActiveKey | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select(ACTIVE_KEY)
    .where('id', '=', id)
    .where(isActiveKey)
    .executeTakeFirst();
  return row && toActiveKey(row);
}

/** Returns those of `ids` that are active. */
export async function listActiveKeys(db: Database, ids: readonly string[]): Promise<Set<string>> {
  const rows = await db
    .selectFrom('api_keys')
    .select('id')
    .where(sql<boolean>`id = any(${ids}::text[])`)
    .where(isActiveKey)
    .execute();
  return new Set(rows.map(({ id }) => id));
}

/** SQL condition: the key is neither revoked nor expired. */
export function isActiveKey(where: ExpressionBuilder<Tables, 'api_keys'>): Expression<SqlBool> {
  return where.and([
    where('revoked_at', 'is', null),
    where.or([where('expires_at', 'is', null), where('expires_at', '>', Date.now())]),
  ]);
}

function toActiveKey({ id, organization_id, team_id, scope, team_only }: ActiveKeyRow): ActiveKey {
  return {
    id,
    owner: { organizationId: organization_id, teamId: team_id },
    scope,
    reach: { organizationId: organization_id, onlyTeamId: team_only ? team_id : null },
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
