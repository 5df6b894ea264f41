/** Captures in the object store, in SQL. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

export interface OwnedCapture {
  captureId: string;
  organizationId: string;
}

const MAX_ROWS = 100;

export class CaptureObjectStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Lists finished captures of a runner that are not stored, those of snapshots first and the oldest first. */
  async listUnstored(runnerId: string): Promise<OwnedCapture[]> {
    const { rows } = await sql<OwnedCapture>`
      SELECT wanted.capture_id AS "captureId", wanted.organization_id AS "organizationId" FROM (
        SELECT id AS capture_id, organization_id, created_at, 1 AS place FROM snapshots
          WHERE status = 'ready' AND runner_id = ${runnerId}
        UNION ALL
        SELECT hibernation_id, organization_id, created_at, 2 FROM sandboxes
          WHERE status = 'hibernated' AND hibernation_id IS NOT NULL AND runner_id = ${runnerId}
      ) AS wanted
      LEFT JOIN capture_objects USING (capture_id)
      WHERE capture_objects.stored_at IS NULL AND capture_objects.removed_at IS NULL
      ORDER BY wanted.place, wanted.created_at
      LIMIT ${MAX_ROWS}`.execute(this.#db);
    return rows;
  }

  /** Notes that objects of a capture may exist from now on. */
  async begin({ captureId, organizationId }: OwnedCapture, runnerId: string, now: number): Promise<void> {
    await this.#db
      .insertInto('capture_objects')
      .values({
        capture_id: captureId,
        organization_id: organizationId,
        runner_id: runnerId,
        created_at: now,
      })
      .onConflict((conflict) => conflict.column('capture_id').doUpdateSet({ runner_id: runnerId }))
      .execute();
  }

  /** Returns false if the capture is not wanted any more: its objects must be removed. */
  async noteStored(captureId: string, bytes: number, now: number): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('capture_objects')
      .set({ stored_at: now, stored_bytes: bytes })
      .where('capture_id', '=', captureId)
      .where('removed_at', 'is', null)
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }

  async isStored(captureId: string): Promise<boolean> {
    const row = await this.#db
      .selectFrom('capture_objects')
      .select('capture_id')
      .where('capture_id', '=', captureId)
      .where('stored_at', 'is not', null)
      .where('removed_at', 'is', null)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Lists captures with objects that no snapshot and no sandbox names. */
  async listLeft(): Promise<OwnedCapture[]> {
    return await this.#db
      .selectFrom('capture_objects')
      .select(['capture_id as captureId', 'organization_id as organizationId'])
      .where('removed_at', 'is', null)
      .where(sql<boolean>`NOT EXISTS (SELECT FROM snapshots WHERE snapshots.id = capture_objects.capture_id)`)
      .where(
        sql<boolean>`NOT EXISTS (SELECT FROM sandboxes WHERE sandboxes.hibernation_id = capture_objects.capture_id)`,
      )
      .limit(MAX_ROWS)
      .execute();
  }

  async noteRemoved(captureId: string, now: number): Promise<void> {
    await this.#db
      .updateTable('capture_objects')
      .set({ removed_at: now })
      .where('capture_id', '=', captureId)
      .execute();
  }

  /** Lists the organizations with chunks that may belong to no capture. */
  async listToCollect(): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('capture_objects')
      .select('organization_id')
      .distinct()
      .where('removed_at', 'is not', null)
      .execute();
    return rows.map((row) => row.organization_id);
  }

  /** Forgets captures of an organization that were removed by then. */
  async forgetRemoved(organizationId: string, removedBefore: number): Promise<void> {
    await this.#db
      .deleteFrom('capture_objects')
      .where('organization_id', '=', organizationId)
      .where('removed_at', '<=', removedBefore)
      .execute();
  }

  /** Notes at which runner snapshots are, of those that were local nowhere, and that stored ones are not local any more. */
  async noteLocal(runnerId: string, captureIds: readonly string[]): Promise<void> {
    const ids = sql`ARRAY[${sql.join(captureIds.length === 0 ? [''] : [...captureIds])}]::text[]`;
    await sql`
      UPDATE snapshots SET runner_id = ${runnerId}
      WHERE runner_id IS NULL AND status = 'ready' AND id = ANY(${ids})`.execute(this.#db);
    await sql`
      UPDATE snapshots SET runner_id = NULL
      FROM capture_objects
      WHERE snapshots.runner_id = ${runnerId} AND snapshots.status = 'ready' AND capture_objects.capture_id = snapshots.id
        AND capture_objects.stored_at IS NOT NULL AND NOT snapshots.id = ANY(${ids})`.execute(this.#db);
  }
}
