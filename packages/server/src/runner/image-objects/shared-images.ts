/**
 * Images in the object store, from which any runner of the region can fetch them. They are stored as captures are:
 *
 *   built or pulled here ── store ─► here and stored ─► fetched by the first create at another runner, into its image cache
 *
 * An image built from steps is in chunks of its organization, so that a snapshot of a sandbox of the image adds nothing for it. One of a
 * registry is everyone's, and stands only for the repositories that have delivered it: whether a caller may have it, the registry says.
 */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { AppError, isBuiltinImage, parseImageReference, type ImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import { z } from 'zod';
import { EVERYONE, type StoredCapture } from '../../lib/protocol/capture-protocol.ts';
import { untilAborted } from '../../lib/waiting/deadline.ts';
import { SingleFlight } from '../../lib/waiting/single-flight.ts';
import { Slots } from '../../lib/waiting/slots.ts';
import { imageKey, type CacheLeases } from '../cache/cache-leases.ts';
import { openIn } from '../capture-objects/capture-files.ts';
import {
  FETCH_TIMEOUT_MS,
  FETCHES,
  runTransfer,
  STORE_TIMEOUT_MS,
  STORES,
} from '../capture-objects/capture-transfer.ts';
import {
  deleteStored,
  Fetched,
  findStored,
  isDamaged,
  Sent,
  type Found,
} from '../capture-objects/stored-captures.ts';
import { freezeFile } from '../disk/vm-directory.ts';
import { diskFull } from '../image/layers/disk-space.ts';
import type { PrepareOptions, WantedPull } from '../image/store/image-store.types.ts';
import { builtReference } from '../image/store/layered-image.ts';
import {
  SQUASHFS_NAME,
  type ImageEntry,
  type NewImage,
  type StoredImages,
} from '../image/store/stored-images.ts';
import { formatPinned } from '../image/source/resolver.ts';
import { BlockServerError, type BlockServer } from '../workspace/block-server.ts';

const MAX_WAITING_OF_OWNER = 64;
const MIB = 2 ** 20;
/** A pull is the other way to an image of a registry, so the store gets little time: for the look-up, and for a fetch by its size. */
const FIND_PULLED_MS = 5_000;
const FETCH_PULLED_MS = 30_000;
const FETCH_PULLED_BYTES_PER_MS = (4 * MIB) / 1000;
const PULL_AFTER_FAILURE_MS = 60_000;
/** Of `st_blocks`. */
const BLOCK_BYTES = 512;

const Common = z.strictObject({
  version: z.literal(1),
  digest: z.string(),
  config: z.strictObject({ env: z.record(z.string(), z.string()), user: z.string(), workdir: z.string() }),
});
/** The runner's notes on a stored image that was built. */
const AboutBuilt = Common.extend({ organization: z.string(), build: z.string() });
type AboutBuilt = z.infer<typeof AboutBuilt>;
/** Its notes on one of a registry. `repositories`: those that have delivered it, `docker.io/library/node`. */
const AboutPulled = Common.extend({ repositories: z.array(z.string()) });
type AboutPulled = z.infer<typeof AboutPulled>;

export interface SharedImagesParts {
  images: StoredImages;
  server: Pick<BlockServer, 'ask' | 'transferCommand'>;
  /** Whether the store is on other machines. In a directory of this one it would hold each image twice. */
  isShared: boolean;
  leases: CacheLeases;
  /** Makes room for that much, or throws `capacity`. */
  makeRoom: (neededMiB: number) => Promise<void>;
  /** Called after each image that is added to the disk. */
  onStored: () => void;
  log: Logger;
}

interface Wanted {
  digest: string;
  organization: string;
}

export class SharedImages implements AsyncDisposable {
  readonly #parts: SharedImagesParts;
  readonly #closing = new AbortController();
  readonly #stores = new SingleFlight<StoredCapture>();
  readonly #fetches = new SingleFlight<void>();
  readonly #running = new Set<Promise<unknown>>();
  readonly #slots = {
    storing: new Slots('images to store', { ...STORES, maxWaitingOfOwner: MAX_WAITING_OF_OWNER }),
    fetching: new Slots('images to fetch', { ...FETCHES, maxWaitingOfOwner: MAX_WAITING_OF_OWNER }),
  };
  /** Until then, in monotonic time, images of registries are not looked for in the store. */
  #pullUntilMs = 0;
  /** Bytes of the images that are being fetched, by the paths of their files. */
  readonly #fetching = new Map<string, number>();

  constructor(parts: SharedImagesParts) {
    this.#parts = parts;
  }

  /**
   * Fetches a built image that this runner lacks, if the object store has it. A caller that leaves ends only its own wait. Throws
   * `invalid_image` if it is damaged there.
   */
  async ensure(
    { digest }: Pick<ImageReference, 'digest'>,
    { organization = '', lease, signal, onStep }: PrepareOptions,
  ): Promise<void> {
    const { images, isShared } = this.#parts;
    if (!isShared || digest === undefined) return;
    lease?.add(imageKey(digest));
    if (images.findOwned(digest, organization) !== undefined) return;
    onStep?.('pull');
    const wanted = { digest, organization };
    const fetched = this.#fetches.run(`${organization} ${digest}`, () =>
      this.#run('fetching', organization, () => this.#fetch(wanted)),
    );
    await untilAborted(signal, fetched);
  }

  /**
   * Fetches an image that a registry has just let the caller of `reference` have, if a runner that pulled it from the same repository has
   * stored it. Returns undefined if it must be pulled, which is soon if the store is slow or away. Throws `capacity` if this machine has no
   * room for it.
   */
  async fetchPulled(wanted: WantedPull): Promise<ImageEntry | undefined> {
    if (!this.#parts.isShared || performance.now() < this.#pullUntilMs) return undefined;
    try {
      return await this.#track(this.#fetchPulled(wanted));
    } catch (error) {
      if (this.#closing.signal.aborted) throw error;
      if (isFull(error)) throw error instanceof BlockServerError ? diskFull(error) : error;
      const isBroken = isDamaged(error) || (error instanceof AppError && error.code === 'invalid_image');
      if (!isBroken) this.#pullUntilMs = performance.now() + PULL_AFTER_FAILURE_MS;
      this.#parts.log.warn(
        { err: error, image: wanted.digest },
        'a stored image could not be fetched; it is pulled',
      );
      return undefined;
    }
  }

  /** Stores an image of this runner, unless it is stored. Chunks that the store has are not sent again. */
  store(digest: string, organization: string): Promise<StoredCapture> {
    if (!this.#parts.isShared) throw notShared();
    return this.#stores.run(`${organization} ${digest}`, () =>
      this.#run('storing', organization, () => this.#store({ digest, organization })),
    );
  }

  /** Removes an image from the object store; this runner keeps it. It need not exist. */
  async remove(digest: string, organization: string): Promise<void> {
    if (!this.#parts.isShared) throw notShared();
    await deleteStored(this.#parts.server, organization, nameOf(digest));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new AppError('unavailable', 'the runner is ending'));
    await Promise.allSettled(this.#running);
  }

  async #store({ digest, organization }: Wanted): Promise<StoredCapture> {
    const { leases, server, log } = this.#parts;
    const startedAt = performance.now();
    using stack = new DisposableStack();
    stack.use(leases.open()).add(imageKey(digest));
    const entry = this.#findLocal({ digest, organization });
    const about = entry && describe(entry);
    if (entry === undefined || about === undefined)
      throw new AppError('image_not_found', `there is no image ${digest} of ${organization} at this runner`);
    const transfer = {
      organization,
      captureId: nameOf(digest),
      about: JSON.stringify(about),
      files: [{ name: SQUASHFS_NAME, descriptor: openIn(stack, entry.path, 'r') }],
      timeoutMs: STORE_TIMEOUT_MS,
      signal: this.#closing.signal,
    };
    const sent = await runTransfer(server.transferCommand('store'), transfer, Sent);
    const elapsed_ms = Math.round(performance.now() - startedAt);
    log.info({ image: digest, ...sent, elapsed_ms }, 'image stored');
    return sent;
  }

  #findLocal({ digest, organization }: Wanted): ImageEntry | undefined {
    const { images } = this.#parts;
    if (organization !== EVERYONE) return images.findOwned(digest, organization);
    const entry = images.find(digest);
    return entry?.owner === undefined ? entry : undefined;
  }

  /** Does nothing if the store does not have it. */
  async #fetch(wanted: Wanted): Promise<void> {
    const { digest, organization } = wanted;
    const { images, leases } = this.#parts;
    using lease = leases.open();
    lease.add(imageKey(digest));
    const found = await this.#find(wanted);
    if (found === undefined) return;
    // It was given up while something held its file, and has a name again.
    const former = images.find(digest);
    if (former?.owner?.organization === organization && (await images.takeBack(former))) return;
    const { build, config, organization: owner } = readAbout(AboutBuilt, found, digest);
    if (owner !== organization) throw damaged(digest);
    const image = {
      config,
      reference: { name: formatPinned(builtReference(digest)), isAnonymous: false },
      owner: { organization, build },
    };
    await this.#fetchFound(found, wanted, image).catch((error: unknown) => this.#explain(error, wanted));
  }

  async #fetchPulled({ reference, digest, name, onFound }: WantedPull): Promise<ImageEntry | undefined> {
    const { server } = this.#parts;
    const found = await findStored(server, EVERYONE, nameOf(digest), { timeoutMs: FIND_PULLED_MS });
    if (found === undefined) return undefined;
    const { repositories, config } = readAbout(AboutPulled, found, digest);
    if (!repositories.includes(repositoryOf(reference))) return undefined;
    onFound();
    const timeoutMs = FETCH_PULLED_MS + found.data_bytes / FETCH_PULLED_BYTES_PER_MS;
    const wanted = { digest, organization: EVERYONE };
    return this.#fetchFound(found, wanted, { config, reference: name }, Math.ceil(timeoutMs));
  }

  async #find({ digest, organization }: Wanted): Promise<Found | undefined> {
    try {
      return await findStored(this.#parts.server, organization, nameOf(digest));
    } catch (error) {
      throw isDamaged(error) ? damaged(digest, error) : error;
    }
  }

  /** Returns if the image was removed from the store meanwhile. Throws otherwise. */
  async #explain(error: unknown, wanted: Wanted): Promise<undefined> {
    if (!(error instanceof BlockServerError)) throw error;
    if ((await this.#find(wanted)) === undefined) return undefined;
    if (isDamaged(error)) throw damaged(wanted.digest, error);
    throw isFull(error) ? diskFull(error) : error;
  }

  async #fetchFound(
    found: Found,
    { digest, organization }: Wanted,
    image: Omit<NewImage, 'digest' | 'sizeBytes'>,
    timeoutMs = FETCH_TIMEOUT_MS,
  ): Promise<ImageEntry> {
    const { images, server, log } = this.#parts;
    const startedAt = performance.now();
    await using staging = await images.makeStaging();
    const path = join(staging.path, SQUASHFS_NAME);
    using _ = await this.#makeRoom(path, found.data_bytes);
    using stack = new DisposableStack();
    const transfer = {
      organization,
      captureId: nameOf(digest),
      about: '',
      files: [{ name: SQUASHFS_NAME, descriptor: openIn(stack, path, 'wx') }],
      timeoutMs,
      signal: this.#closing.signal,
    };
    const fetched = await runTransfer(server.transferCommand('fetch'), transfer, Fetched);
    freezeFile(path);
    // The store has it, so this copy may be evicted.
    const entry = await images.publish(staging.path, { ...image, digest, sizeBytes: statSync(path).size });
    const elapsed_ms = Math.round(performance.now() - startedAt);
    log.info({ image: digest, ...fetched, elapsed_ms }, 'image fetched');
    this.#parts.onStored();
    return entry;
  }

  /** Makes room for a file and for what the others that are being fetched still lack, until the result is disposed. Throws `capacity`. */
  async #makeRoom(path: string, bytes: number): Promise<Disposable> {
    this.#fetching.set(path, bytes);
    const room = { [Symbol.dispose]: () => void this.#fetching.delete(path) };
    try {
      const missing = Array.from(this.#fetching, ([file, size]) => Math.max(0, size - writtenBytes(file)));
      await this.#parts.makeRoom(Math.ceil(missing.reduce((sum, each) => sum + each, 0) / MIB));
      return room;
    } catch (error) {
      room[Symbol.dispose]();
      throw error;
    }
  }

  #run<T>(kind: 'storing' | 'fetching', organization: string, work: () => Promise<T>): Promise<T> {
    const { signal } = this.#closing;
    signal.throwIfAborted();
    return this.#track(this.#slots[kind].run(signal, work, organization));
  }

  /** The end of the runner waits for it. */
  #track<T>(running: Promise<T>): Promise<T> {
    this.#running.add(running);
    return running.finally(() => this.#running.delete(running));
  }
}

/** Whether this machine has no room. */
function isFull(error: unknown): boolean {
  if (error instanceof BlockServerError) return error.message.includes('no space left on device');
  return error instanceof AppError && error.code === 'capacity';
}

/** Bytes that a file takes on disk; 0 before it exists. */
function writtenBytes(path: string): number {
  return BLOCK_BYTES * (statSync(path, { throwIfNoEntry: false })?.blocks ?? 0);
}

/** The object store's id of an image, beside those of the organization's captures. */
function nameOf(digest: string): string {
  return `image-${digest.slice(digest.indexOf(':') + 1)}`;
}

/** Returns the notes on an image, or undefined if it is neither built nor pulled. */
function describe({ digest, owner, config, references }: ImageEntry): AboutBuilt | AboutPulled | undefined {
  const common = { version: 1 as const, digest, config: { ...config, env: { ...config.env } } };
  if (owner !== undefined) return { ...common, ...owner };
  const pulled = Array.from(references.keys(), parseImageReference).filter(
    (reference) => !isBuiltinImage(reference),
  );
  if (pulled.length === 0) return undefined;
  return { ...common, repositories: [...new Set(pulled.map(repositoryOf))] };
}

function repositoryOf({ registry, repository }: ImageReference): string {
  return `${registry}/${repository}`;
}

/** Throws `invalid_image` if the stored files are those of another image. */
function readAbout<T extends { digest: string }>(
  schema: z.ZodType<T>,
  { about, files }: Found,
  digest: string,
): T {
  try {
    const read = schema.parse(JSON.parse(about));
    const isOnlyFile = files.length === 1 && files[0]?.name === SQUASHFS_NAME;
    if (isOnlyFile && read.digest === digest) return read;
  } catch (error) {
    throw damaged(digest, error);
  }
  throw damaged(digest);
}

function damaged(digest: string, cause?: unknown): AppError {
  const why = cause instanceof Error ? `: ${cause.message}` : '';
  return new AppError(
    'invalid_image',
    `the image ${digest} is damaged in the object store${why}; build it again with no_cache`,
    { cause },
  );
}

function notShared(): AppError {
  return new AppError(
    'invalid_state',
    'the object store is a directory of this machine, so images are not stored in it; set COPPICE_OBJECT_STORE',
  );
}
