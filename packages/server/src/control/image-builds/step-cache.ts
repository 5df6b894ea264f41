/**
 * Keeps the results of steps, for later builds of the same organization that begin with the same steps:
 *
 *   step is done ─► the runner makes an image of the sandbox's files ─► row: key ─► digest
 *   next build   ─► row of the longest prefix, if the runner still has its image ─► its sandbox begins with that image
 *
 * An image comes before its row, so a process killed between the two leaves an image that no row names; it is removed with
 * what else the build has left. The runner treats such an image as part of its image cache: it may evict it at any time, and its row goes when
 * it is next looked up.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import type { ImageStepTable } from '../images/built-image-tables.ts';
import type { BuiltImages } from '../images/built-images.ts';
import { lockNames, noteReleases } from '../images/image-names.ts';
import type { FleetImages } from '../images/fleet-images.ts';
import type { Clock } from '../time/clock.ts';

/** Bytes of the cached steps of one organization, as stored. Images with a name do not count. */
export const MAX_STEP_BYTES = 10 * 2 ** 30;
const MAX_ROWS = 500;
/** Rows that one statement removes. */
const PURGED_ROWS = 500;
const UNUSED_MS = 30 * 86_400_000;

export interface StepCacheParts {
  db: Database;
  images: Pick<BuiltImages, 'list' | 'settle'>;
  fleet: Pick<FleetImages, 'find'>;
  clock: Pick<Clock, 'wallMs'>;
  log: Logger;
}

export interface CachedImage {
  digest: string;
  size_bytes: number;
}

export interface Hit extends CachedImage {
  /** Steps that the image has. */
  steps: number;
}

export class StepCache {
  readonly #parts: StepCacheParts;

  constructor(parts: StepCacheParts) {
    this.#parts = parts;
  }

  /** Finds the image of the longest prefix of the steps with these keys. A failure of the database finds nothing. */
  async find(organizationId: string, keys: readonly string[]): Promise<Hit | undefined> {
    if (keys.length === 0) return undefined;
    try {
      return await this.#find(organizationId, keys);
    } catch (error) {
      // The runner's.
      if (error instanceof AppError) throw error;
      this.#parts.log.warn({ err: error }, 'the cached steps of a build could not be looked up');
      return undefined;
    }
  }

  async #find(organizationId: string, keys: readonly string[]): Promise<Hit | undefined> {
    const { db, clock } = this.#parts;
    const rows = await db
      .selectFrom('image_steps')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .where('key', 'in', keys)
      .execute();
    const byKey = new Map(rows.map((row) => [row.key, row]));
    for (const [index, key] of [...keys.entries()].toReversed()) {
      const row = byKey.get(key);
      if (row === undefined) continue;
      const ofRow = { organizationId, key };
      if (await this.#isStored(row.digest)) {
        await this.#update(ofRow).set({ last_used_at: clock.wallMs() }).execute();
        return { digest: row.digest, size_bytes: row.size_bytes, steps: index + 1 };
      }
      await this.#remove([row]);
    }
    return undefined;
  }

  /** Stores the result of a step. */
  async add(organizationId: string, key: string, { digest, size_bytes }: CachedImage): Promise<void> {
    const { db, images, clock } = this.#parts;
    const last_used_at = clock.wallMs();
    const row = { organization_id: organizationId, key, digest, size_bytes, last_used_at };
    const former = await db.transaction().execute((transaction) => putStep(transaction, row));
    await images.settle(former);
    await this.trim(organizationId);
  }

  /** Removes the steps that no build has used for a month. */
  async purge(): Promise<void> {
    const { db, clock } = this.#parts;
    for (;;) {
      const old = await db
        .selectFrom('image_steps')
        .selectAll()
        .where('last_used_at', '<', clock.wallMs() - UNUSED_MS)
        .limit(PURGED_ROWS)
        .execute();
      await this.#remove(old);
      if (old.length < PURGED_ROWS) return;
    }
  }

  #update({ organizationId, key }: { organizationId: string; key: string }) {
    return this.#parts.db
      .updateTable('image_steps')
      .where('organization_id', '=', organizationId)
      .where('key', '=', key);
  }

  async #isStored(digest: string): Promise<boolean> {
    try {
      await this.#parts.fleet.find(digest);
      return true;
    } catch (error) {
      if (error instanceof AppError && error.code === 'image_not_found') return false;
      throw error;
    }
  }

  /** Evicts the steps with the oldest use if the organization has too many. */
  async trim(organizationId: string): Promise<void> {
    const { db, images } = this.#parts;
    const rows = await db
      .selectFrom('image_steps')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .orderBy('last_used_at', 'desc')
      .orderBy('key')
      .execute();
    const named = new Set((await images.list(organizationId)).map(({ digest }) => digest));
    const gone = selectOverLimit(rows, named);
    await this.#remove(gone);
  }

  async #remove(rows: readonly ImageStepTable[]): Promise<void> {
    if (rows.length === 0) return;
    const { db, images, clock } = this.#parts;
    for (const [organizationId, ofOne] of Map.groupBy(rows, (row) => row.organization_id)) {
      const digests = ofOne.map(({ digest }) => digest);
      await db.transaction().execute(async (transaction) => {
        await lockNames(transaction, organizationId);
        for (const { key, digest } of ofOne)
          await transaction
            .deleteFrom('image_steps')
            .where('organization_id', '=', organizationId)
            .where('key', '=', key)
            .where('digest', '=', digest)
            .execute();
        await noteReleases(transaction, digests, clock.wallMs());
      });
      await images.settle(digests);
    }
  }
}

/** Stores the result of a step. Returns the digests of former results. */
export async function putStep(transaction: Database, row: ImageStepTable): Promise<string[]> {
  const { organization_id, key, digest, size_bytes, last_used_at } = row;
  await lockNames(transaction, organization_id);
  const former = await transaction
    .selectFrom('image_steps')
    .select('digest')
    .where('organization_id', '=', organization_id)
    .where('key', '=', key)
    .where('digest', '!=', digest)
    .execute();
  await transaction
    .insertInto('image_steps')
    .values(row)
    .onConflict((conflict) =>
      conflict.columns(['organization_id', 'key']).doUpdateSet({ digest, size_bytes, last_used_at }),
    )
    .execute();
  const digests = former.map((each) => each.digest);
  await noteReleases(transaction, digests, last_used_at);
  return digests;
}

/** Selects what does not fit in the limits. `rows` begin with the one that was used last. */
function selectOverLimit<T extends CachedImage>(rows: readonly T[], named: ReadonlySet<string>): T[] {
  const counted = new Set(named);
  let bytes = 0;
  return rows.filter(({ digest, size_bytes }, index) => {
    if (index >= MAX_ROWS) return true;
    if (counted.has(digest)) return false;
    // One that is too large must not cost those that fit.
    if (bytes + size_bytes > MAX_STEP_BYTES) return true;
    bytes += size_bytes;
    counted.add(digest);
    return false;
  });
}
