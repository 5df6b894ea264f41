/**
 * Images that organizations have built from steps, by name. A name belongs to one organization: two of them may use the
 * same, and neither sees the other's.
 */
import {
  AppError,
  BUILT_REGISTRY,
  formatImageReference,
  isBuiltImage,
  parseImageReference,
  type ImageReference,
} from '@coppice/contract';
import type { Logger } from 'pino';
import { SerialQueue } from '../../lib/waiting/serial-queue.ts';
import type { Database } from '../db/database.ts';
import type { RunnerImages } from '../placement/runner-images.ts';
import type { BuiltImageTable } from './built-image-tables.ts';

export interface BuiltImagesParts {
  db: Database;
  runner: Pick<RunnerImages, 'keep' | 'release'>;
  log: Logger;
}

export class BuiltImages {
  readonly #parts: BuiltImagesParts;
  /** Names and releases one after another: an image that gets a name must not be released meanwhile. */
  readonly #queue = new SerialQueue();

  constructor(parts: BuiltImagesParts) {
    this.#parts = parts;
  }

  /**
   * Returns the reference of a built image with its digest, and any other as it is. Throws `image_not_found` unless the
   * organization has built it: a digest is no right to an image.
   */
  async pin(organizationId: string, image: string): Promise<string> {
    const reference = parseImageReference(image);
    if (!isBuiltImage(reference)) return image;
    const rows = await this.list(organizationId);
    const row = rows.find(({ name, digest }) => matches(reference, name, digest));
    if (row !== undefined) return `${row.name}@${row.digest}`;
    throw new AppError(
      'image_not_found',
      `your organization has no built image ${formatImageReference(reference)}; list the images, or write "docker.io/${BUILT_REGISTRY}/…" for one of that registry`,
    );
  }

  list(organizationId: string): Promise<BuiltImageTable[]> {
    return this.#parts.db
      .selectFrom('built_images')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .orderBy('name')
      .execute();
  }

  /** Returns the bytes of the organization's images as stored. */
  async usedBytes(organizationId: string): Promise<number> {
    const rows = await this.list(organizationId);
    const byDigest = new Map(rows.map(({ digest, size_bytes }) => [digest, size_bytes]));
    return [...byDigest.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Throws `image_not_found` if there is none. Sandboxes of the image keep it. */
  async delete(organizationId: string, image: string): Promise<void> {
    const { name } = parseBuiltName(image);
    const row = await this.#parts.db
      .deleteFrom('built_images')
      .where('organization_id', '=', organizationId)
      .where('name', '=', name)
      .returningAll()
      .executeTakeFirst();
    if (row === undefined)
      throw new AppError('image_not_found', `your organization has no built image ${name}`);
    await this.releaseUnnamed([row.digest]);
  }

  /** Protects an image from eviction, and lets `name` give it a name. Throws `unavailable` if it is not stored any more. */
  keepAndName<T>(organizationId: string, digest: string, name: () => Promise<T>): Promise<T> {
    return this.#queue.run(async () => {
      if (await this.#parts.runner.keep(digest, organizationId, true)) return name();
      throw new AppError('unavailable', 'the image was removed before it got its name; build again');
    });
  }

  /** Has the runner remove those images that no name stands for, also if builds could begin with them. Never throws. */
  releaseUnnamed(digests: readonly string[]): Promise<void> {
    return this.#release(digests, async (digest) => {
      if (await this.#isNamed(digest)) return false;
      await this.#parts.db.deleteFrom('image_steps').where('digest', '=', digest).execute();
      return true;
    });
  }

  /** Gives up an image whose name stands for another one now. Builds can still begin with it. Never throws. */
  async releaseReplaced(organizationId: string, digest: string): Promise<void> {
    await this.#release([digest], async () => {
      if (await this.#isNamed(digest)) return false;
      if (!(await this.#isCached(digest))) return true;
      await this.#parts.runner.keep(digest, organizationId, false);
      return false;
    });
  }

  /** Has the runner remove those images that neither a name nor a cached step stands for. Never throws. */
  releaseUnused(digests: readonly string[]): Promise<void> {
    return this.#release(
      digests,
      async (digest) => !(await this.#isNamed(digest)) && !(await this.#isCached(digest)),
    );
  }

  /** An image that could not be removed is tried again at the next start. */
  async #release(digests: readonly string[], isUnused: (digest: string) => Promise<boolean>): Promise<void> {
    for (const digest of new Set(digests)) {
      try {
        await this.#queue.run(async () => {
          if (await isUnused(digest)) await this.#parts.runner.release(digest);
        });
      } catch (error) {
        this.#parts.log.warn({ err: error, digest }, 'a built image could not be removed');
      }
    }
  }

  async #isNamed(digest: string): Promise<boolean> {
    const row = await this.#parts.db
      .selectFrom('built_images')
      .select('name')
      .where('digest', '=', digest)
      .executeTakeFirst();
    return row !== undefined;
  }

  async #isCached(digest: string): Promise<boolean> {
    const row = await this.#parts.db
      .selectFrom('image_steps')
      .select('key')
      .where('digest', '=', digest)
      .executeTakeFirst();
    return row !== undefined;
  }
}

/** Parses `app:1` or `built/app:1`. Throws `invalid_image` or `image_not_pinned`. */
export function parseBuiltName(text: string): { name: string } {
  const prefix = `${BUILT_REGISTRY}/`;
  const reference = parseImageReference(text.startsWith(prefix) ? text : `${prefix}${text}`);
  if (reference.digest === undefined) return { name: formatImageReference(reference) };
  throw new AppError('invalid_image', `name ${JSON.stringify(text)}: give a tag and no digest`);
}

function matches(reference: ImageReference, name: string, digest: string): boolean {
  if (reference.digest !== undefined && reference.digest !== digest) return false;
  const known = parseImageReference(name);
  const isTagged = reference.tag === undefined || reference.tag === known.tag;
  return known.repository === reference.repository && isTagged;
}
