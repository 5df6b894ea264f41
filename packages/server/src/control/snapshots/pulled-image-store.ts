/**
 * Images of registries in the object store, in SQL: rows of capture_objects of the owner EVERYONE. They are a cache, from which goes what
 * no organization has used lately.
 */
import { LOCAL_REGISTRY } from '@coppice/contract';
import { sql, type RawBuilder } from 'kysely';
import { EVERYONE } from '../../lib/protocol/capture-protocol.ts';
import type { Database } from '../db/database.ts';
import { claimRemoval, listUnremoved, type OwnedCapture } from './capture-object-store.ts';

const MAX_ROWS = 100;
const HOUR_MS = 3_600_000;
/** Longer than the runner may take for an upload. A second one would end the first. */
const CLAIM_MS = 6 * HOUR_MS;

/** Limits on these images in the bucket. */
const CROWDED = { images: 400, bytes: 400 * 2 ** 30 };
const FULL = { images: 500, bytes: 500 * 2 ** 30 };

interface Ages {
  /** Since its last use an image is stored. Uses are noted hourly. */
  storeMs: number;
  /** After this without a use it is removed. So long after `storeMs` that it is not stored again at once. */
  removeMs: number;
}

const AGES: Ages = { storeMs: 6 * 24 * HOUR_MS, removeMs: 7 * 24 * HOUR_MS };
const CROWDED_AGES: Ages = { storeMs: 12 * HOUR_MS, removeMs: 24 * HOUR_MS };
const FULL_AGES: Ages = { ...CROWDED_AGES, storeMs: 0 };

export class PulledImageStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Lists images of registries that a runner has, that organizations use and that are not stored, the one used last first. None while no
   * other runner could fetch them.
   */
  async listUnstored(runnerId: string, digests: readonly string[], now: number): Promise<OwnedCapture[]> {
    if (digests.length === 0) return [];
    const { storeMs } = await this.#ages();
    if (storeMs === 0) return [];
    const { rows } = await sql<OwnedCapture>`
      SELECT digest AS "captureId", ${EVERYONE} AS "organizationId" FROM image_uses
      LEFT JOIN capture_objects ON capture_objects.capture_id = digest
      WHERE digest = ANY(ARRAY[${sql.join(digests)}]::text[]) AND last_used_at > ${now - storeMs}
        AND NOT starts_with(image, ${`${LOCAL_REGISTRY}/`})
        AND (capture_objects.capture_id IS NULL OR ${mayStore(runnerId, now)})
        AND (SELECT count(*) FROM runners WHERE revoked_at IS NULL) > 1
      GROUP BY digest
      ORDER BY max(last_used_at) DESC
      LIMIT ${MAX_ROWS}`.execute(this.#db);
    return rows;
  }

  /** Has this runner store an image. Returns false if another one does, or has, or if there is no room. */
  async claim(digest: string, runnerId: string, now: number): Promise<boolean> {
    if ((await this.#ages()).storeMs === 0) return false;
    const { rows } = await sql`
      INSERT INTO capture_objects (capture_id, organization_id, runner_id, created_at)
      VALUES (${digest}, ${EVERYONE}, ${runnerId}, ${now})
      ON CONFLICT (capture_id) DO UPDATE SET runner_id = ${runnerId}, created_at = ${now}
      WHERE ${mayStore(runnerId, now)}
      RETURNING capture_id`.execute(this.#db);
    return rows.length > 0;
  }

  /** Lets any runner store an image whose upload has failed at this one. */
  async release(digest: string, runnerId: string): Promise<void> {
    await this.#db
      .updateTable('capture_objects')
      .set({ created_at: 0 })
      .where('capture_id', '=', digest)
      .where('organization_id', '=', EVERYONE)
      .where('runner_id', '=', runnerId)
      .where('stored_at', 'is', null)
      .execute();
  }

  /** Lists images that no organization has used lately. */
  async listLeft(now: number): Promise<OwnedCapture[]> {
    return listUnremoved(this.#db, await this.#isUnused(now));
  }

  /** Notes that an image is removed, before it is. Returns false if it is used again, or is removed already. */
  async claimRemoval(digest: string, now: number): Promise<boolean> {
    return claimRemoval(this.#db, digest, await this.#isUnused(now), now);
  }

  /** Whether a row is about an image of a registry that no organization has used lately. */
  async #isUnused(now: number): Promise<RawBuilder<boolean>> {
    const since = now - (await this.#ages()).removeMs;
    return sql<boolean>`(
      capture_objects.organization_id = ${EVERYONE} AND NOT EXISTS (
        SELECT FROM image_uses WHERE image_uses.digest = capture_objects.capture_id AND last_used_at > ${since}))`;
  }

  async #ages(): Promise<Ages> {
    const { images, bytes } = await this.#db
      .selectFrom('capture_objects')
      .select((select) => [
        select.fn.countAll<number>().as('images'),
        sql<number>`coalesce(sum(stored_bytes), 0)::float8`.as('bytes'),
      ])
      .where('organization_id', '=', EVERYONE)
      .where('removed_at', 'is', null)
      .executeTakeFirstOrThrow();
    const reaches = (limit: typeof FULL): boolean => images >= limit.images || bytes >= limit.bytes;
    if (reaches(FULL)) return FULL_AGES;
    return reaches(CROWDED) ? CROWDED_AGES : AGES;
  }
}

/** Whether a runner may store an image that has a row: it is not stored, and no other runner has begun lately. */
function mayStore(runnerId: string, now: number): RawBuilder<boolean> {
  return sql`(capture_objects.organization_id = ${EVERYONE}
    AND capture_objects.stored_at IS NULL AND capture_objects.removed_at IS NULL
    AND (capture_objects.runner_id = ${runnerId} OR capture_objects.created_at < ${now - CLAIM_MS}))`;
}
