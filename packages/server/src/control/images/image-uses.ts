/**
 * Images that organizations have requested. The runner shares images among all organizations, and their names disclose
 * what others work with. So each organization sees only its own, by the names that it used, and the built-in ones.
 */
import { BUILT_REGISTRY, BUILTIN_REGISTRY, type ImageRecord } from '@coppice/contract';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import type { BuiltImageTable } from './built-image-tables.ts';
import type { OwnedImage, PreparedImage } from '../../lib/protocol/runner-protocol.ts';

/** Limit for each organization; the image with the oldest use is dropped first. */
const MAX_IMAGES = 1000;
/** Accuracy of the time of the last use: a create with a recently used image writes nothing. */
const REMEMBERED_MS = 3_600_000;
const MAX_REMEMBERED = 10_000;

type BuiltName = Pick<BuiltImageTable, 'name' | 'digest' | 'size_bytes' | 'built_at'>;

export class ImageUses {
  readonly #db: Database;
  readonly #log: Logger;
  /** Uses that are in SQL, and when each was written. */
  readonly #remembered = new Map<string, number>();

  constructor(db: Database, log: Logger) {
    this.#db = db;
    this.#log = log;
  }

  /**
   * Records the use of an image after a create or a build. `image` is the resolved reference,
   * `registry/repository:tag@sha256:…`. Does not throw: a successful request must not fail because a list lacks an
   * image.
   */
  async note(organizationId: string, image: string): Promise<void> {
    const digest = /@(sha256:[0-9a-f]{64})$/u.exec(image)?.[1];
    const use = nameUse(organizationId, image);
    const isKnown = (this.#remembered.get(use) ?? 0) > Date.now() - REMEMBERED_MS;
    if (digest === undefined || isKnown || isBuiltinName(image) || isBuiltName(image)) return;
    try {
      await this.#store(organizationId, image, digest);
      this.#remember(use);
    } catch (error) {
      this.#log.warn(
        { err: error, organization_id: organizationId, image },
        'the use of an image could not be stored',
      );
    }
  }

  /**
   * Selects from the runners' images the built-in ones and those that this organization requested, by its own names. Adds those that
   * it has `built`, with what the runners have made of them; they may also be at other controls' runners, or only in the object store.
   */
  async show(
    organizationId: string,
    prepared: readonly PreparedImage[],
    { built, owned }: { built: readonly BuiltName[]; owned: readonly OwnedImage[] },
  ): Promise<ImageRecord[]> {
    const requested = pick(prepared, await this.#list(organizationId));
    const shapes = new Map(owned.map((image) => [image.digest, image.shapes]));
    const named = built.map(({ name, digest, size_bytes, built_at }) => ({
      image: `${name}@${digest}`,
      digest,
      size_bytes,
      prepared_at: new Date(built_at).toISOString(),
      status: 'ready' as const,
      shapes: shapes.get(digest) ?? [],
    }));
    const builtin = prepared.filter(({ image }) => isBuiltinName(image));
    return [...requested, ...named, ...builtin].sort((a, b) => (a.image < b.image ? -1 : 1));
  }

  #list(organizationId: string): Promise<{ image: string; digest: string }[]> {
    return this.#db
      .selectFrom('image_uses')
      .select(['image', 'digest'])
      .where('organization_id', '=', organizationId)
      .execute();
  }

  async #store(organizationId: string, image: string, digest: string): Promise<void> {
    const last_used_at = Date.now();
    await this.#db
      .insertInto('image_uses')
      .values({ organization_id: organizationId, image, digest, last_used_at })
      .onConflict((conflict) =>
        conflict.columns(['organization_id', 'image']).doUpdateSet({ digest, last_used_at }),
      )
      .execute();
    await this.#db
      .deleteFrom('image_uses')
      .where('organization_id', '=', organizationId)
      .where('image', 'in', (select) =>
        select
          .selectFrom('image_uses')
          .select('image')
          .where('organization_id', '=', organizationId)
          .orderBy('last_used_at', 'desc')
          .orderBy('image')
          .offset(MAX_IMAGES),
      )
      .execute();
  }

  #remember(use: string): void {
    this.#remembered.delete(use);
    this.#remembered.set(use, Date.now());
    const [oldest] = this.#remembered.keys();
    if (this.#remembered.size > MAX_REMEMBERED && oldest !== undefined) this.#remembered.delete(oldest);
  }
}

function nameUse(organizationId: string, image: string): string {
  return `${organizationId} ${image}`;
}

/** Gives images the names that the organization uses for them. Those that are not stored are left out. */
function pick(
  stored: readonly Omit<ImageRecord, 'image'>[],
  names: readonly { image: string; digest: string }[],
): ImageRecord[] {
  const byDigest = new Map(stored.map((image) => [image.digest, image]));
  return names.flatMap(({ image, digest }) => {
    const found = byDigest.get(digest);
    return found === undefined ? [] : [{ ...found, image }];
  });
}

/** These are in a table of their own. */
function isBuiltName(image: string): boolean {
  return image.startsWith(`${BUILT_REGISTRY}/`);
}

function isBuiltinName(image: string): boolean {
  return image.startsWith(`${BUILTIN_REGISTRY}/`);
}
