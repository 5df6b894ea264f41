/**
 * Grants of sandboxes in SQL, with sealed secrets. The statement that ends a sandbox deletes them: billed-update.ts.
 */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import type { NewGrantRow, GrantRow } from './egress-tables.ts';

export class GrantStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Lists the grants of a sandbox, sorted by service. */
  list(sandboxId: string): Promise<GrantRow[]> {
    return this.#db
      .selectFrom('sandbox_credentials')
      .selectAll()
      .where('sandbox_id', '=', sandboxId)
      .orderBy('service')
      .execute();
  }

  /** Inserts grants, but not of ended sandboxes, which would keep them forever. */
  async insert(rows: readonly NewGrantRow[]): Promise<void> {
    if (rows.length === 0) return;
    await this.#db.transaction().execute(async (transaction) => {
      const ids = [...new Set(rows.map((row) => row.sandbox_id))];
      const alive = new Set(await lockAlive(transaction, ids));
      const kept = rows.filter((row) => alive.has(row.sandbox_id));
      if (kept.length > 0) await transaction.insertInto('sandbox_credentials').values(kept).execute();
    });
  }

  /** Replaces all grants of a sandbox. Call inside a transaction. */
  async replace(transaction: Database, sandboxId: string, rows: readonly NewGrantRow[]): Promise<void> {
    const alive = await lockAlive(transaction, [sandboxId]);
    await transaction.deleteFrom('sandbox_credentials').where('sandbox_id', '=', sandboxId).execute();
    if (rows.length > 0 && alive.length > 0)
      await transaction.insertInto('sandbox_credentials').values(rows).execute();
  }
}

/** Locks the live ones and returns their ids. Their end waits for this transaction, or this transaction sees it. */
async function lockAlive(transaction: Database, ids: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT id FROM sandboxes WHERE id = ANY(${[...ids]}::text[]) AND ended_at IS NULL
    ORDER BY id FOR NO KEY UPDATE`.execute(transaction);
  return rows.map(({ id }) => id);
}
