/** Captures and images built from steps in the object store, in SQL. Those of registries are in pulled-image-store.ts. */
import { sql, type RawBuilder } from 'kysely';
import { EVERYONE } from '../../lib/protocol/capture-protocol.ts';
import type { Database } from '../db/database.ts';

export interface OwnedCapture {
  /** Id of a capture, or the digest of an image. */
  captureId: string;
  /** EVERYONE for an image of a registry. */
  organizationId: string;
}

const MAX_ROWS = 100;

/** Whether nothing names what the row is about, which is no image of a registry. */
const IS_LEFT = sql<boolean>`(
  capture_objects.organization_id <> ${EVERYONE}
  AND NOT EXISTS (SELECT FROM snapshots WHERE snapshots.id = capture_objects.capture_id)
  AND NOT EXISTS (SELECT FROM sandboxes WHERE sandboxes.hibernation_id = capture_objects.capture_id)
  AND NOT EXISTS (SELECT FROM built_images WHERE built_images.digest = capture_objects.capture_id))`;

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

  /** Lists images with a name that a runner has and that are not stored, the oldest first. */
  async listUnstoredImages(runnerId: string): Promise<OwnedCapture[]> {
    const { rows } = await sql<OwnedCapture>`
      SELECT digest AS "captureId", built_images.organization_id AS "organizationId" FROM built_images
      LEFT JOIN capture_objects ON capture_objects.capture_id = digest
      WHERE built_images.runner_id = ${runnerId}
        AND capture_objects.stored_at IS NULL AND capture_objects.removed_at IS NULL
      GROUP BY digest, built_images.organization_id
      ORDER BY min(built_at)
      LIMIT ${MAX_ROWS}`.execute(this.#db);
    return rows;
  }

  /** Gives a runner the names of images that are said to be at none. */
  async adoptImages(runnerId: string, digests: readonly string[]): Promise<void> {
    if (digests.length === 0) return;
    await this.#db
      .updateTable('built_images')
      .set({ runner_id: runnerId })
      .where('runner_id', 'is', null)
      .where('digest', 'in', digests)
      .execute();
  }

  /** Notes that a runner does not have an image that its names say it has. */
  async noteImageGone(runnerId: string, digest: string): Promise<void> {
    await this.#db
      .updateTable('built_images')
      .set({ runner_id: null })
      .where('runner_id', '=', runnerId)
      .where('digest', '=', digest)
      .execute();
  }

  /** Notes that the objects of an image are gone, if it has been stored again while they were removed: then it is stored once more. */
  async noteImageRemoved(digest: string): Promise<void> {
    await this.#db
      .updateTable('capture_objects')
      .set({ stored_at: null })
      .where('capture_id', '=', digest)
      .where('removed_at', 'is', null)
      .execute();
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

  /** Lists captures with objects that no snapshot and no sandbox names, and built images without a name. */
  async listLeft(): Promise<OwnedCapture[]> {
    return listUnremoved(this.#db, IS_LEFT);
  }

  /**
   * Notes that an image is removed, before it is. Returns false if it has a name again, or is removed already: unlike a capture it may be
   * named again at any time.
   */
  async claimRemoval(digest: string, now: number): Promise<boolean> {
    return claimRemoval(this.#db, digest, IS_LEFT, now);
  }

  /** Lists images of an organization that are noted as removed. */
  async listRemovedImages(organizationId: string): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('capture_objects')
      .select('capture_id')
      .where('organization_id', '=', organizationId)
      .where('removed_at', 'is not', null)
      .where('capture_id', 'like', 'sha256:%')
      .execute();
    return rows.map((row) => row.capture_id);
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

/** Lists what is not noted as removed and for which `isLeft` holds. */
export async function listUnremoved(db: Database, isLeft: RawBuilder<boolean>): Promise<OwnedCapture[]> {
  return db
    .selectFrom('capture_objects')
    .select(['capture_id as captureId', 'organization_id as organizationId'])
    .where('removed_at', 'is', null)
    .where(isLeft)
    .limit(MAX_ROWS)
    .execute();
}

/** Notes that an image is removed, before it is. Returns false if `isLeft` holds no longer, or if it is removed already. */
export async function claimRemoval(
  db: Database,
  digest: string,
  isLeft: RawBuilder<boolean>,
  now: number,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('capture_objects')
    .set({ removed_at: now })
    .where('capture_id', '=', digest)
    .where('removed_at', 'is', null)
    .where(isLeft)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}
