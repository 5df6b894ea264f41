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
import type { Database } from '../db/database.ts';
import type { ImageStepTable } from '../images/built-image-tables.ts';
import type { BuiltImages } from '../images/built-images.ts';
import { noteReleases } from '../images/image-names.ts';
import type { RunnerImages } from '../placement/runner-images.ts';
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
  runner: Pick<RunnerImages, 'find'>;
  clock: Pick<Clock, 'wallMs'>;
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

  /** Finds the image of the longest prefix of the steps with these keys. */
  async find(organizationId: string, keys: readonly string[]): Promise<Hit | undefined> {
    const { db, clock } = this.#parts;
    if (keys.length === 0) return undefined;
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

  /** Stores the result of a step, and evicts the steps with the oldest use if the organization has too many. */
  async add(organizationId: string, key: string, { digest, size_bytes }: CachedImage): Promise<void> {
    const { db, images, clock } = this.#parts;
    const last_used_at = clock.wallMs();
    const row = { organization_id: organizationId, key, digest, size_bytes, last_used_at };
    const former = await db.transaction().execute(async (transaction) => {
      const found = await transaction
        .selectFrom('image_steps')
        .select('digest')
        .where('organization_id', '=', organizationId)
        .where('key', '=', key)
        .where('digest', '!=', digest)
        .forUpdate()
        .execute();
      await transaction
        .insertInto('image_steps')
        .values(row)
        .onConflict((conflict) =>
          conflict.columns(['organization_id', 'key']).doUpdateSet({ digest, size_bytes, last_used_at }),
        )
        .execute();
      const digests = found.map((each) => each.digest);
      await noteReleases(transaction, digests, last_used_at);
      return digests;
    });
    await images.settle(former);
    await this.#trim(organizationId);
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
      await this.#parts.runner.find(digest);
      return true;
    } catch (error) {
      if (error instanceof AppError && error.code === 'image_not_found') return false;
      throw error;
    }
  }

  async #trim(organizationId: string): Promise<void> {
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
    const digests = rows.map(({ digest }) => digest);
    await db.transaction().execute(async (transaction) => {
      for (const { organization_id, key, digest } of rows)
        await transaction
          .deleteFrom('image_steps')
          .where('organization_id', '=', organization_id)
          .where('key', '=', key)
          .where('digest', '=', digest)
          .execute();
      await noteReleases(transaction, digests, clock.wallMs());
    });
    await images.settle(digests);
  }
}

/** `rows` begin with the one that was used last. */
function selectOverLimit<T extends CachedImage>(rows: readonly T[], named: ReadonlySet<string>): T[] {
  const counted = new Set(named);
  let bytes = 0;
  return rows.filter(({ digest, size_bytes }, index) => {
    if (!counted.has(digest)) bytes += size_bytes;
    counted.add(digest);
    return index >= MAX_ROWS || (bytes > MAX_STEP_BYTES && !named.has(digest));
  });
}
