/** The first organization and its first key, so that a new installation can be used at once. */
import { randomBytes } from 'node:crypto';
import { generateApiKey } from '@coppice/contract';
import type { Database } from '../db/database.ts';
import { ensureApiKey } from './api-key-store.ts';

const ORGANIZATION_NAME = 'default';

export interface BootstrapOptions {
  region: string;
  /** From the configuration, for automation; must be a key of this region. */
  bootstrapKey?: string;
}

/**
 * Makes organization `default` when there is none. Returns the key that was made for it, to be shown once; undefined
 * when the organization was there, or the key was given and is therefore known to whoever gave it.
 */
export async function bootstrapOrganization(
  db: Database,
  options: BootstrapOptions,
): Promise<string | undefined> {
  return db.transaction().execute(async (transaction) => {
    const id = `org${randomBytes(10).toString('hex')}`;
    const made = await transaction
      .insertInto('organizations')
      .values({ id, name: ORGANIZATION_NAME, region: options.region, created_at: Date.now() })
      .onConflict((conflict) => conflict.column('name').doNothing())
      .executeTakeFirst();
    const isFirst = made.numInsertedOrUpdatedRows === 1n;
    if (options.bootstrapKey !== undefined) {
      await ensureApiKey(transaction, await findOrganization(transaction), options.bootstrapKey);
      return undefined;
    }
    if (!isFirst) return undefined;
    const key = generateApiKey(options.region);
    await ensureApiKey(transaction, id, key);
    return key;
  });
}

async function findOrganization(db: Database): Promise<string> {
  const found = await db
    .selectFrom('organizations')
    .select('id')
    .where('name', '=', ORGANIZATION_NAME)
    .executeTakeFirstOrThrow();
  return found.id;
}
