/** API keys in SQL. Only the SHA-256 of a key is there; the key is shown once, by whoever makes it. */
import { randomBytes } from 'node:crypto';
import type { Database } from '../db/database.ts';
import { hashApiKey } from './hash-api-key.ts';

export interface StoredKey {
  id: string;
  organizationId: string;
  sha256: Buffer;
}

/** The key with this hash if it is known and not revoked. Asked on every request: revocation acts at once. */
export async function findActiveKey(db: Database, sha256: Buffer): Promise<StoredKey | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select(['id', 'organization_id', 'sha256'])
    .where('sha256', '=', sha256)
    .where('revoked_at', 'is', null)
    .executeTakeFirst();
  return row && { id: row.id, organizationId: row.organization_id, sha256: row.sha256 };
}

/** The organization of a key that is not revoked. */
export async function findKeyOwner(db: Database, id: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('api_keys')
    .select('organization_id')
    .where('id', '=', id)
    .where('revoked_at', 'is', null)
    .executeTakeFirst();
  return row?.organization_id;
}

/** Stores a key of an organization; one that is stored already stays as it is, revoked or not. */
export async function ensureApiKey(db: Database, organizationId: string, key: string): Promise<void> {
  await db
    .insertInto('api_keys')
    .values({
      id: `key${randomBytes(10).toString('hex')}`,
      organization_id: organizationId,
      sha256: hashApiKey(key),
      last4: key.slice(-4),
      created_at: Date.now(),
      revoked_at: null,
    })
    .onConflict((conflict) => conflict.column('sha256').doNothing())
    .execute();
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
