/** API keys in SQL. Only the SHA-256 of a key is there; the key is shown once, by whoever makes it. */
import { sql, type Expression, type ExpressionBuilder, type SqlBool } from 'kysely';
import { newId } from '../../lib/new-id.ts';
import type { Owner } from '../accounts/organization-store.ts';
import type { Database } from '../db/database.ts';
import type { Tables } from '../db/tables.ts';
import { hashApiKey } from './hash-api-key.ts';

export interface StoredKey {
  id: string;
  owner: Owner;
  sha256: Buffer;
}

/** The key with this hash if it is good. Asked on every request: revocation acts at once. */
export async function findActiveKey(db: Database, sha256: Buffer): Promise<StoredKey | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select(['id', 'organization_id', 'team_id', 'sha256'])
    .where('sha256', '=', sha256)
    .where(isActiveKey)
    .executeTakeFirst();
  return row && { id: row.id, owner: toOwner(row), sha256: row.sha256 };
}

/** Whose key it is, if it is good. */
export async function findKeyOwner(db: Database, id: string): Promise<Owner | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select(['organization_id', 'team_id'])
    .where('id', '=', id)
    .where(isActiveKey)
    .executeTakeFirst();
  return row && toOwner(row);
}

/** Those of `ids` that are good. */
export async function listActiveKeys(db: Database, ids: readonly string[]): Promise<Set<string>> {
  const rows = await db
    .selectFrom('api_keys')
    .select('id')
    .where(sql<boolean>`id = any(${ids}::text[])`)
    .where(isActiveKey)
    .execute();
  return new Set(rows.map(({ id }) => id));
}

/** Neither revoked nor expired. */
export function isActiveKey(where: ExpressionBuilder<Tables, 'api_keys'>): Expression<SqlBool> {
  return where.and([
    where('revoked_at', 'is', null),
    where.or([where('expires_at', 'is', null), where('expires_at', '>', Date.now())]),
  ]);
}

function toOwner(row: { organization_id: string; team_id: string }): Owner {
  return { organizationId: row.organization_id, teamId: row.team_id };
}

/** Stores a key of a team; one that is stored already stays as it is, revoked or not. */
export async function ensureApiKey(
  db: Database,
  { organizationId, teamId }: Owner,
  key: string,
): Promise<void> {
  await db
    .insertInto('api_keys')
    .values({ ...newKeyRow({ organizationId, teamId }, key), name: 'first' })
    .onConflict((conflict) => conflict.column('sha256').doNothing())
    .execute();
}

/** What is stored of a new key. */
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

/** Makes the key useless from the next request on. */
export async function revokeApiKey(db: Database, key: string): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ revoked_at: Date.now() })
    .where('sha256', '=', hashApiKey(key))
    .where('revoked_at', 'is', null)
    .execute();
}
