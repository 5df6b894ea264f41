/**
 * Grants of sandboxes in SQL, with sealed secrets. The statement that ends a sandbox deletes them: billed-update.ts.
 */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { NewGrantRow, GrantRow } from './egress-tables.ts';
import { deletedMeanwhile } from './named-secrets/secret-values.ts';

/** A grant with the name of its secret, if that is one of the organization. */
export interface StoredGrant extends GrantRow {
  secret_name: string | null;
}

/** The version of a named secret that signs the requests of a grant. */
export interface RotatedGrant {
  service: string;
  secretId: string;
  version: number;
}

export class GrantStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Lists the grants of a sandbox, sorted by service. */
  list(sandboxId: string): Promise<StoredGrant[]> {
    return this.#db
      .selectFrom('sandbox_credentials')
      .leftJoin('named_secrets', 'named_secrets.id', 'sandbox_credentials.secret_id')
      .selectAll('sandbox_credentials')
      .select('named_secrets.name as secret_name')
      .where('sandbox_id', '=', sandboxId)
      .orderBy('service')
      .execute();
  }

  /** Inserts grants, but not of ended sandboxes, which would keep them forever. Named secrets get their current version. */
  async insert(rows: readonly NewGrantRow[]): Promise<void> {
    if (rows.length === 0) return;
    await this.#db.transaction().execute(async (transaction) => {
      const ids = [...new Set(rows.map((row) => row.sandbox_id))];
      const alive = new Set(await lockAlive(transaction, ids));
      const kept = rows.filter((row) => alive.has(row.sandbox_id));
      const versions = await lockSecrets(transaction, kept);
      const current = kept.map((row) =>
        Object.assign({}, row, { secret_version: versions.get(row.secret_id ?? '') ?? null }),
      );
      if (kept.length > 0) await transaction.insertInto('sandbox_credentials').values(current).execute();
    });
  }

  /**
   * Replaces all grants of a sandbox. Call inside a transaction. Returns whether the named secrets have the versions of
   * the rows until the transaction ends.
   */
  async replace(transaction: Database, sandboxId: string, rows: readonly NewGrantRow[]): Promise<boolean> {
    const alive = await lockAlive(transaction, [sandboxId]);
    await transaction.deleteFrom('sandbox_credentials').where('sandbox_id', '=', sandboxId).execute();
    if (rows.length === 0 || alive.length === 0) return true;
    const versions = await lockSecrets(transaction, rows);
    await transaction.insertInto('sandbox_credentials').values(rows).execute();
    return rows.every(
      ({ secret_id, secret_version }) => versions.get(secret_id ?? '') === (secret_version ?? undefined),
    );
  }

  /** Records that requests are signed with these versions. Call inside a transaction. */
  async storeVersions(
    transaction: Database,
    sandboxId: string,
    rotated: readonly RotatedGrant[],
  ): Promise<void> {
    for (const { service, secretId, version } of rotated)
      await transaction
        .updateTable('sandbox_credentials')
        .set({ secret_version: version })
        .where('sandbox_id', '=', sandboxId)
        .where('service', '=', service)
        .where('secret_id', '=', secretId)
        .execute();
  }
}

/** Locks the live ones and returns their ids. Their end waits for this transaction, or this transaction sees it. */
async function lockAlive(transaction: Database, ids: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT id FROM sandboxes WHERE id = ANY(${[...ids]}::text[]) AND ended_at IS NULL
    ORDER BY id FOR NO KEY UPDATE`.execute(transaction);
  return rows.map(({ id }) => id);
}

/**
 * Locks the named secrets of grants and returns their versions. A new value of one waits for this transaction, and then
 * finds its grants; so does a deletion.
 */
async function lockSecrets(
  transaction: Database,
  grants: readonly NewGrantRow[],
): Promise<Map<string, number>> {
  const ids = [...new Set(grants.flatMap(({ secret_id }) => secret_id ?? []))];
  if (ids.length === 0) return new Map();
  const { rows } = await sql<{ id: string; version: number }>`
    SELECT id, version FROM named_secrets WHERE id = ANY(${ids}::text[]) ORDER BY id FOR SHARE`.execute(
    transaction,
  );
  if (rows.length < ids.length) throw deletedMeanwhile();
  return new Map(rows.map(({ id, version }) => [id, version]));
}
