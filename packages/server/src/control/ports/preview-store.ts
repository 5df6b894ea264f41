/** Preview links in SQL: their targets, expiry and revocation. */
import type { KeyScope } from '@coppice/contract';
import { isActiveKey, isTeamOnly } from '../auth/api-key-store.ts';
import type { Database } from '../db/database.ts';
import type { PreviewTable } from './preview-tables.ts';

export type PreviewRow = PreviewTable;

/** A preview with the state and limits of its key; null for a preview without a key. */
export interface FoundPreview extends PreviewRow {
  key_is_active: boolean | null;
  key_scope: KeyScope | null;
  key_team_id: string | null;
  key_team_only: boolean | null;
}

export class PreviewStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async insert(row: PreviewRow): Promise<void> {
    await this.#db.insertInto('previews').values(row).execute();
  }

  /** Lists the links that still open something, newest first. */
  listLive(sandboxId: string, now: number): Promise<PreviewRow[]> {
    return this.#db
      .selectFrom('previews')
      .selectAll()
      .where('sandbox_id', '=', sandboxId)
      .where('expires_at', '>', now)
      .where('revoked_at', 'is', null)
      .orderBy('created_at', 'desc')
      .orderBy('id')
      .execute();
  }

  find(id: string): Promise<FoundPreview | undefined> {
    return this.#db
      .selectFrom('previews')
      .leftJoin('api_keys', 'api_keys.id', 'previews.api_key_id')
      .selectAll('previews')
      .select([
        'api_keys.scope as key_scope',
        'api_keys.team_id as key_team_id',
        isActiveKey().as('key_is_active'),
        isTeamOnly().as('key_team_only'),
      ])
      .where('previews.id', '=', id)
      .executeTakeFirst();
  }

  /** Revokes a link. Returns false if the sandbox has no such link, or it was revoked before. */
  async revoke(sandboxId: string, id: string, now: number): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('previews')
      .set({ revoked_at: now })
      .where('id', '=', id)
      .where('sandbox_id', '=', sandboxId)
      .where('revoked_at', 'is', null)
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }

  async purge(before: number): Promise<void> {
    await this.#db.deleteFrom('previews').where('expires_at', '<', before).execute();
  }
}
