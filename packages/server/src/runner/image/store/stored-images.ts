/**
 * The images on disk:
 *
 *   <directory>/images/sha256-<hex>/image.squashfs, image.json    complete: made in staging and renamed
 *   <directory>/staging/<unique>/                                 being made or removed; the next start removes it
 */
import { renameSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import { z } from 'zod';
import { syncLater } from '../../../lib/files/durable-file.ts';
import { KeyedQueue } from '../../../lib/waiting/keyed-queue.ts';
import { LastUse } from '../../cache/last-use.ts';
import type { ImageConfig } from './image-store.types.ts';

export const SQUASHFS_NAME = 'image.squashfs';
const RECORD_NAME = 'image.json';
/** A registry may give one image any number of names. */
const MAX_REFERENCES = 256;
/** VMMs open their image by its path, but must not list the images of others. */
const DIRECTORY_MODE = 0o711;

const ImageRecord = z.object({
  version: z.literal(1),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/u),
  size_bytes: z.int().positive(),
  prepared_at: z.iso.datetime(),
  config: z.object({ env: z.record(z.string(), z.string()), user: z.string(), workdir: z.string() }),
  references: z.array(
    z.object({
      name: z.string(),
      resolved_at: z.iso.datetime(),
      /** Whether the registry served it to an anonymous caller. */
      anonymous: z.boolean().default(false),
    }),
  ),
  /** Of an image built from steps. Absent for images that are fetched or imported. */
  owner: z.strictObject({ organization: z.string(), build: z.string() }).optional(),
  /** Whether such an image has a name. One without is what a step of a build left, and part of the cache. */
  kept: z.literal(true).optional(),
  released: z.literal(true).optional(),
});

/** The organization that owns an image built from steps, and the build that made it. */
export interface ImageOwner {
  organization: string;
  build: string;
}

/** A stored image with all references that led to it. */
export interface ImageEntry {
  digest: string;
  path: string;
  sizeBytes: number;
  config: ImageConfig;
  preparedAt: Date;
  /** Canonical references as requested, with the time at which each last began to point to this image. */
  references: Map<string, Date>;
  /** The references that were served to an anonymous caller: only these may serve one while the registry is down. */
  anonymous: Set<string>;
  lastUse: LastUse;
  /** Undefined for images that are fetched or imported. */
  owner: ImageOwner | undefined;
  /** Set for such an image with a name: nothing can make it again, so it is not evicted. */
  isKept: boolean;
  /** Its owner has deleted it: nothing finds it, and it is removed as soon as no VM uses it. */
  isReleased: boolean;
}

export interface NewReference {
  name: string;
  isAnonymous: boolean;
}

export type NewImage = Pick<ImageEntry, 'digest' | 'sizeBytes' | 'config'> & {
  reference: NewReference;
  owner?: ImageOwner;
  isKept?: boolean;
};

/** An entry that has an owner. */
export type OwnedEntry = ImageEntry & { owner: ImageOwner };

export class StoredImages {
  readonly #imagesPath: string;
  readonly #stagingPath: string;
  readonly #entries = new Map<string, ImageEntry>();
  /** By digest: the record on disk is the last one that was asked for. */
  readonly #writes = new KeyedQueue();
  /** Digests of the images with an owner, in order; undefined when it must be made again. */
  #ownedDigests: string[] | undefined;

  private constructor(directory: string) {
    this.#imagesPath = join(directory, 'images');
    this.#stagingPath = join(directory, 'staging');
  }

  /** Reads the stored images. Removes those that an earlier process left unfinished or that cannot be read. */
  static async open(directory: string, log: Logger): Promise<StoredImages> {
    const images = new StoredImages(directory);
    await rm(images.#stagingPath, { recursive: true, force: true, maxRetries: 5 });
    await mkdir(images.#stagingPath, { recursive: true, mode: DIRECTORY_MODE });
    await chmod(images.#stagingPath, DIRECTORY_MODE);
    await mkdir(images.#imagesPath, { recursive: true, mode: DIRECTORY_MODE });
    await chmod(images.#imagesPath, DIRECTORY_MODE);
    for (const name of await readdir(images.#imagesPath)) {
      const path = join(images.#imagesPath, name);
      try {
        const entry = await readEntry(path);
        if (directoryName(entry.digest) !== name) throw new Error(`${path} holds ${entry.digest}`);
        images.#entries.set(entry.digest, entry);
      } catch (error) {
        log.warn({ err: error, path }, 'a stored image cannot be read and is removed');
        await rm(path, { recursive: true, force: true });
      }
    }
    return images;
  }

  find(digest: string): ImageEntry | undefined {
    return this.#entries.get(digest);
  }

  /** Whether a reference to this repository has led to the image. */
  isFrom(digest: string, { registry, repository }: ImageReference): boolean {
    const prefix = `${registry}/${repository}`;
    const names = this.#entries.get(digest)?.references.keys() ?? [];
    return Array.from(names).some((name) => name.startsWith(`${prefix}:`) || name.startsWith(`${prefix}@`));
  }

  values(): Iterable<ImageEntry> {
    return this.#entries.values();
  }

  /** Makes a staging directory on the file system of the images; disposing it removes it. */
  async makeStaging(): Promise<AsyncDisposable & { path: string }> {
    const path = await mkdtemp(join(this.#stagingPath, 'image-'));
    // Where programs have no mounts of their own, the user of a preparation reaches its files by their path.
    await chmod(path, DIRECTORY_MODE);
    return {
      path,
      [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true, maxRetries: 5 }),
    };
  }

  /** Publishes an image. `path` is a staging directory that holds only the squashfs file, which is synced to disk. */
  async publish(path: string, image: NewImage): Promise<ImageEntry> {
    const now = new Date();
    const target = join(this.#imagesPath, directoryName(image.digest));
    const made = {
      digest: image.digest,
      path: join(target, SQUASHFS_NAME),
      sizeBytes: image.sizeBytes,
      config: image.config,
      preparedAt: now,
      references: new Map([[image.reference.name, now]]),
      anonymous: new Set(image.reference.isAnonymous ? [image.reference.name] : []),
      owner: image.owner,
      isKept: image.isKept === true,
      isReleased: false,
    };
    await writeRecord(path, made);
    await chmod(path, DIRECTORY_MODE);
    await rename(path, target);
    await syncLater(this.#imagesPath);
    const entry = { ...made, lastUse: LastUse.read(target) };
    this.#entries.set(entry.digest, entry);
    this.#ownedDigests = undefined;
    return entry;
  }

  /** Finds an image that this organization has built. */
  findOwned(digest: string, organization: string): OwnedEntry | undefined {
    const entry = this.#entries.get(digest);
    if (entry === undefined || !isOwned(entry) || entry.isReleased) return undefined;
    return entry.owner.organization === organization ? entry : undefined;
  }

  /** Yields the images with an owner in the order of their digests, those that are released too. */
  *owned(after = ''): Generator<OwnedEntry> {
    this.#ownedDigests ??= [...this.#entries.values()]
      .filter(isOwned)
      .map(({ digest }) => digest)
      .sort();
    for (const digest of this.#ownedDigests) {
      const entry = digest > after ? this.#entries.get(digest) : undefined;
      if (entry !== undefined && isOwned(entry)) yield entry;
    }
  }

  /** Whether VMs or captures hold links to the file of the image, so that its bytes stay when it is removed. */
  async isLinked(digest: string): Promise<boolean> {
    const entry = this.#entries.get(digest);
    // A file that cannot be read holds nothing up: its removal fails by itself.
    const found = entry === undefined ? undefined : await stat(entry.path).catch(() => undefined);
    return found !== undefined && found.nlink > 1;
  }

  /** Has a built image removed as soon as nothing uses it. Returns false if there is none. */
  async release(digest: string): Promise<boolean> {
    const entry = this.#entries.get(digest);
    if (entry?.owner === undefined) return false;
    await this.#change(entry, () => ({ isReleased: true }));
    return true;
  }

  /**
   * Records that a built image has got a name, which takes back its release, or that it has lost it. Returns false if it was
   * evicted before.
   */
  keep(entry: ImageEntry, isKept: boolean): Promise<boolean> {
    return this.#change(entry, ({ isReleased }) => ({ isKept, isReleased: isReleased && !isKept }));
  }

  /** Takes back a release: the image is part of the cache then. Returns false if it was evicted before. */
  takeBack(entry: ImageEntry): Promise<boolean> {
    return this.#change(entry, ({ isReleased }) => (isReleased ? { isReleased: false, isKept: false } : {}));
  }

  /** Changes an image here first, where the evictor looks, and takes that back if it cannot be written. */
  #change(
    entry: ImageEntry,
    decide: (entry: ImageEntry) => Partial<Pick<ImageEntry, 'isKept' | 'isReleased'>>,
  ): Promise<boolean> {
    const { digest } = entry;
    const isStored = (): boolean => this.#entries.get(digest) === entry;
    return this.#writes.run(digest, async () => {
      if (!isStored()) return false;
      const { isKept, isReleased } = entry;
      const wanted = { isKept, isReleased, ...decide(entry) };
      if (wanted.isKept === isKept && wanted.isReleased === isReleased) return true;
      Object.assign(entry, wanted);
      try {
        await writeRecord(join(this.#imagesPath, directoryName(digest)), entry);
      } catch (error) {
        Object.assign(entry, { isKept, isReleased });
        // The evictor was faster.
        if (!isStored()) return false;
        throw error;
      }
      return isStored();
    });
  }

  /** Removes an image; look-ups miss it at once. No VM may use it. */
  async evict(digest: string): Promise<void> {
    if (!this.#entries.has(digest)) return;
    const name = directoryName(digest);
    const trash = join(this.#stagingPath, `evicted-${name}-${process.hrtime.bigint()}`);
    renameSync(join(this.#imagesPath, name), trash);
    this.#entries.delete(digest);
    this.#ownedDigests = undefined;
    await rm(trash, { recursive: true, force: true, maxRetries: 5 });
  }

  /** Records that `reference` points to this image from now on. Writes only changes. */
  async addReference(entry: ImageEntry, reference: NewReference): Promise<void> {
    const { name, isAnonymous } = reference;
    const isKnown = newestHolder(this.#entries.values(), name) === entry;
    if (isKnown && (!isAnonymous || entry.anonymous.has(name))) return;
    entry.references.set(name, new Date());
    if (isAnonymous) entry.anonymous.add(name);
    const [oldest] = entry.references.keys();
    if (entry.references.size > MAX_REFERENCES && oldest !== undefined) {
      entry.references.delete(oldest);
      entry.anonymous.delete(oldest);
    }
    await this.#writes.run(entry.digest, () =>
      writeRecord(join(this.#imagesPath, directoryName(entry.digest)), entry),
    );
  }
}

function isOwned(entry: ImageEntry): entry is OwnedEntry {
  return entry.owner !== undefined;
}

/** Returns the image that a reference pointed to last. */
function newestHolder(entries: Iterable<ImageEntry>, reference: string): ImageEntry | undefined {
  let newest: ImageEntry | undefined;
  let newestAt = Number.NEGATIVE_INFINITY;
  for (const entry of entries) {
    const at = entry.references.get(reference)?.getTime() ?? Number.NEGATIVE_INFINITY;
    if (at <= newestAt) continue;
    newest = entry;
    newestAt = at;
  }
  return newest;
}

/** Finds the image that each reference pointed to last. */
export function newestHolders(entries: Iterable<ImageEntry>): Map<string, ImageEntry> {
  const holders = new Map<string, ImageEntry>();
  for (const entry of entries)
    for (const [reference, at] of entry.references) {
      const other = holders.get(reference)?.references.get(reference);
      if (other === undefined || at > other) holders.set(reference, entry);
    }
  return holders;
}

function directoryName(digest: string): string {
  return digest.replace(':', '-');
}

async function readEntry(path: string): Promise<ImageEntry> {
  const record = ImageRecord.parse(JSON.parse(await readFile(join(path, RECORD_NAME), 'utf8')));
  const squashfsPath = join(path, SQUASHFS_NAME);
  const { size } = await stat(squashfsPath);
  if (size !== record.size_bytes)
    throw new Error(`${squashfsPath} has ${size} bytes, not ${record.size_bytes}`);
  return {
    digest: record.digest,
    path: squashfsPath,
    sizeBytes: size,
    config: record.config,
    preparedAt: new Date(record.prepared_at),
    references: new Map(record.references.map(({ name, resolved_at }) => [name, new Date(resolved_at)])),
    anonymous: new Set(record.references.flatMap(({ name, anonymous }) => (anonymous ? [name] : []))),
    lastUse: LastUse.read(path),
    owner: record.owner,
    isKept: record.kept === true,
    isReleased: record.released === true,
  };
}

async function writeRecord(directory: string, entry: Omit<ImageEntry, 'lastUse'>): Promise<void> {
  const record: z.infer<typeof ImageRecord> = {
    version: 1,
    digest: entry.digest,
    size_bytes: entry.sizeBytes,
    prepared_at: entry.preparedAt.toISOString(),
    config: { ...entry.config, env: { ...entry.config.env } },
    references: [...entry.references].map(([name, at]) => ({
      name,
      resolved_at: at.toISOString(),
      anonymous: entry.anonymous.has(name),
    })),
    ...(entry.owner !== undefined && { owner: entry.owner }),
    ...(entry.isKept && { kept: true as const }),
    ...(entry.isReleased && { released: true as const }),
  };
  const path = join(directory, RECORD_NAME);
  const temporaryPath = `${path}.${process.hrtime.bigint()}.new`;
  try {
    await writeFile(temporaryPath, `${JSON.stringify(record, undefined, 2)}\n`, { flush: true });
    await rename(temporaryPath, path);
  } catch (error) {
    await rm(temporaryPath, { force: true });
    throw error;
  }
  await syncLater(directory);
}
