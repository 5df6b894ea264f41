/**
 * Images that organizations have built from steps, by name. A name belongs to one organization: two of them may use the
 * same, and neither sees the other's.
 *
 *   a name or a step loses its image ─ same transaction ─► note in image_releases ─► settle: the runner gives the image up,
 *                                                              or may evict it if a step still begins with it ─► note goes
 */
import {
  AppError,
  BUILT_REGISTRY,
  formatImageReference,
  isBuiltImage,
  parseImageReference,
  type AuditActor,
  type ImageReference,
} from '@coppice/contract';
import type { Logger } from 'pino';
import { KeyedQueue } from '../../lib/waiting/keyed-queue.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import type { Database } from '../db/database.ts';
import type { RunnerClaims } from '../ownership/runner-claims.ts';
import { ElsewhereError } from '../placement/elsewhere.ts';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import type { CaptureObjectStore } from '../snapshots/capture-object-store.ts';
import type { Clock } from '../time/clock.ts';
import type { BuiltImageTable } from './built-image-tables.ts';
import type { FleetImages } from './fleet-images.ts';
import { checkName, dropName, findImageRunner, findStanding, listNames } from './image-names.ts';

const MAX_PENDING = 100;

export interface BuiltImagesParts {
  db: Database;
  audit: OrganizationAudit;
  fleet: Pick<
    FleetImages,
    'keep' | 'expose' | 'allFetch' | 'listFetching' | 'release' | 'listOwned' | 'listHolders' | 'placeOf'
  >;
  /** Whether the object store has an image. */
  objects: Pick<CaptureObjectStore, 'isStored'>;
  /** Whether a control that is alive has the runner. */
  isOwned: RunnerClaims['isOwned'];
  clock: Pick<Clock, 'wallMs'>;
  log: Logger;
}

/** The caller who changes what a name stands for. */
interface Change {
  reach: Reach;
  by: AuditActor;
}

export class BuiltImages {
  readonly #parts: BuiltImagesParts;
  /** By digest: an image that gets a name must not be released meanwhile. */
  readonly #queue = new KeyedQueue();
  /** Digests that builds are about to use, and how many. */
  readonly #held = new Map<string, number>();

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

  /**
   * Returns the runners that can make a sandbox of an image; undefined for one that any of them can pull, or fetch from the object
   * store. Throws an {@link ElsewhereError} if another control has its runner, and `unavailable` if that one is away.
   */
  async listHolders(image: string): Promise<OwnedRunner[] | undefined> {
    const { db, fleet, objects } = this.#parts;
    const reference = parseImageReference(image);
    const { digest } = reference;
    if (!isBuiltImage(reference) || digest === undefined) return undefined;
    const isStored = await objects.isStored(digest);
    if (isStored && fleet.allFetch) return undefined;
    const builtAt = await findImageRunner(db, digest);
    const holders = await fleet.listHolders(digest, builtAt);
    // Runners of an earlier version do not fetch it.
    const able = isStored ? [...new Set([...holders, ...fleet.listFetching()])] : holders;
    if (able.length > 0) return able;
    const name = formatImageReference(reference);
    if (builtAt !== null) await this.#requireElsewhere(name, builtAt);
    throw new AppError('image_not_found', `no runner stores the image ${name}`);
  }

  /** Throws unless the runner answers here, and so has been asked. */
  async #requireElsewhere(name: string, runnerId: string): Promise<void> {
    const { fleet, isOwned } = this.#parts;
    const place = fleet.placeOf(runnerId);
    if (place === 'here') return;
    if (place === 'elsewhere' && (await isOwned(runnerId))) throw new ElsewhereError(runnerId);
    const message = `the image ${name} is only at the runner ${runnerId}, which does not answer; start that machine again, or build the image again`;
    throw new AppError('unavailable', message, { details: { runner_id: runnerId } });
  }

  list(organizationId: string): Promise<BuiltImageTable[]> {
    return listNames(this.#parts.db, organizationId);
  }

  /** Throws if a build of this caller may not end with the name: see `checkName`; or `rate_limited`, after too many. */
  async checkName({ reach, by }: Change, name: string): Promise<void> {
    const { db, audit } = this.#parts;
    await audit.requireRoom(db, { organizationId: reach.organizationId, by });
    await checkName(db, reach, name);
  }

  /**
   * Returns the stored bytes that count for an organization: of images with a name or about to get one, and of those given up
   * that its sandboxes or snapshots still hold.
   */
  async usedBytes(organizationId: string): Promise<number> {
    const named = await this.list(organizationId);
    const owned = await this.#parts.fleet.listOwned({ organization: organizationId });
    const counted = [...named, ...owned.filter(({ kept, released }) => kept || released)];
    // Some are at runners of other controls, or only in the object store.
    const sizes = new Map(counted.map(({ digest, size_bytes }) => [digest, size_bytes]));
    return [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Throws `image_not_found` if there is none. Sandboxes of the image keep it. */
  async delete({ reach, by }: Change, image: string): Promise<void> {
    const { db, audit, clock } = this.#parts;
    const { organizationId } = reach;
    const { name } = parseBuiltName(image);
    const row = await audit.commit(db, { organizationId, by }, async (transaction) => {
      const result = await dropName(transaction, reach, { name, atMs: clock.wallMs() });
      if (result === undefined) return { result, notes: [] };
      const { digest } = result;
      return { result, notes: [{ event: 'image.deleted', data: { image: name, digest } }] };
    });
    if (row === undefined)
      throw new AppError('image_not_found', `your organization has no built image ${name}`);
    await this.settle([row.digest]);
  }

  /** Protects an image from eviction. Returns the runner that does. Throws {@link ImageGone} if it is not stored any more. */
  async keep(organizationId: string, digest: string): Promise<string> {
    const { db, fleet } = this.#parts;
    const runnerId = await fleet.keep(digest, organizationId, await findImageRunner(db, digest));
    if (runnerId === undefined) throw new ImageGone();
    return runnerId;
  }

  /**
   * Protects an image from eviction, and lets `name` give it a name at that runner. Throws {@link ImageGone} if it is not stored any
   * more.
   */
  keepAndName<T>(organizationId: string, digest: string, name: (runnerId: string) => Promise<T>): Promise<T> {
    return this.#queue.run(digest, async () => name(await this.keep(organizationId, digest)));
  }

  /** Until the result is disposed, the image is not given up, whatever becomes of its name and its steps. */
  hold(digest: string): Disposable {
    this.#held.set(digest, (this.#held.get(digest) ?? 0) + 1);
    return {
      [Symbol.dispose]: () => {
        const left = (this.#held.get(digest) ?? 0) - 1;
        if (left > 0) this.#held.set(digest, left);
        else this.#held.delete(digest);
      },
    };
  }

  /** Gives up those of the images that nothing stands for. Never throws: an image that was noted stays so after a failure. */
  async settle(digests: readonly string[]): Promise<void> {
    for (const digest of new Set(digests)) {
      try {
        await this.#settle(digest);
      } catch (error) {
        this.#parts.log.warn({ err: error, digest }, 'a built image is given up later');
      }
    }
  }

  /** Gives up what a build has made and nothing stands for. Throws if the runner does not answer. */
  async settleBuild(organization: string, build: string): Promise<void> {
    for (const { digest } of await this.#parts.fleet.listOwned({ organization, build }))
      await this.#settle(digest);
  }

  /** Gives up the images that are noted. Throws at its end if some could not be given up. */
  async settleNoted(stop: AbortSignal): Promise<void> {
    const rows = await this.#parts.db
      .selectFrom('image_releases')
      .select('digest')
      .orderBy('noted_at')
      .limit(MAX_PENDING)
      .execute();
    let failure: { error: unknown } | undefined;
    for (const { digest } of rows) {
      if (stop.aborted) return;
      try {
        await this.#settle(digest);
      } catch (error) {
        failure ??= { error };
        await this.#moveBack(digest);
      }
    }
    if (failure !== undefined) throw failure.error;
  }

  /**
   * Lets the runner evict images that this database does not know, like those that were built after the backup from which it
   * was restored. Nothing else removes them: a mistake of the database must not cost images that nothing can make again.
   */
  async exposeUnknown(isBusy: (buildId: string) => boolean): Promise<void> {
    const { fleet, db, log } = this.#parts;
    const kept = (await fleet.listOwned({})).filter((image) => image.kept && !image.released);
    for (const { digest, organization, build } of kept) {
      if (isBusy(build)) continue;
      await this.#queue.run(digest, async () => {
        if ((await findStanding(db, digest))?.kind === 'name' || isBusy(build)) return;
        log.warn({ digest, organization, build }, 'a built image has no name: it is part of the cache now');
        await fleet.expose(digest, organization);
      });
    }
  }

  #settle(digest: string): Promise<void> {
    const { db, fleet } = this.#parts;
    return this.#queue.run(digest, async () => {
      if (this.#held.has(digest)) return;
      const note = await db
        .selectFrom('image_releases')
        .select('noted_at')
        .where('digest', '=', digest)
        .executeTakeFirst();
      const standing = await findStanding(db, digest);
      if (standing === undefined) await fleet.release(digest);
      // Only builds begin with it: the runner may evict it.
      else if (standing.kind === 'step') await fleet.expose(digest, standing.organizationId);
      if (note === undefined) return;
      await db
        .deleteFrom('image_releases')
        .where('digest', '=', digest)
        .where('noted_at', '=', note.noted_at)
        .execute();
    });
  }

  /** Lets the notes behind this one go first, which may be of images that can be given up. */
  async #moveBack(digest: string): Promise<void> {
    const { db, clock } = this.#parts;
    await db
      .updateTable('image_releases')
      .set({ noted_at: clock.wallMs() })
      .where('digest', '=', digest)
      .execute();
  }
}

/** The runner does not store an image any more that a build was about to use. */
class ImageGone extends AppError {
  constructor() {
    super('unavailable', 'the image was removed before it got its name; build again');
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
