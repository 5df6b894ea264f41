/**
 * Images of this runner: one read-only squashfs file per digest, prepared once and kept.
 *
 *   prepare(reference) ──► resolve ──► stored? ──► answer
 *                                        │ no
 *                                        └──► one flight per digest: fetch from the object store, or pull ──► flatten
 *                                             ──► publish ──► answer callers
 *
 * An image stored from one repository serves another repository only after that one has delivered it too: its registry
 * may know no more than the digest.
 * Flights are detached: a caller that leaves ends only its own wait.
 */
import { mkdir } from 'node:fs/promises';
import {
  AppError,
  formatImageReference,
  isBuiltImage,
  isBuiltinImage,
  parseImageReference,
  type ImageReference,
} from '@coppice/contract';
import type { Logger } from 'pino';
import { untilAborted } from '../../../lib/waiting/deadline.ts';
import type { ImageAccess, OwnedImagesQuery } from '../../../lib/protocol/runner-protocol.ts';
import { imageKey, type CacheLeases } from '../../cache/cache-leases.ts';
import { DEFAULT_IMAGE_LIMITS, type ImageLimits } from '../layers/image-limits.ts';
import type {
  PrepareOptions,
  PrepareProgress,
  PrepareStep,
  PreparingImage,
  StoredImage,
  WantedPull,
} from './image-store.types.ts';
import { LocalImages } from '../local/local-images.ts';
import { joinLayouts, type BuiltinImage } from '../source/oci-source.ts';
import { compressedBytes } from '../source/manifest.ts';
import { builtReference, buildLayeredImage, type LayeredBuild, type TakeTurn } from './layered-image.ts';
import { LayerSpace } from './layer-space.ts';
import { prepareImage } from './preparation.ts';
import { ProgressMeter } from '../layers/progress-meter.ts';
import { proveImage } from '../source/pull.ts';
import { RegistryClient } from '../registry/registry-client.ts';
import type { RegistrySettings } from '../registry/registry-settings.ts';
import { SYSTEM_CERTIFICATES } from '../../../lib/tls/trust.ts';
import { ImageResolver, formatPinned } from '../source/resolver.ts';
import { Slots } from '../../../lib/waiting/slots.ts';
import { UnpackPlaces, type UnpackPlacesOptions } from '../unpacking/unpack-places.ts';
import { listOwned, type OwnedPage } from './owned-images.ts';
import { StoredImages, newestHolders, type ImageEntry } from './stored-images.ts';

export interface ImageStoreOptions extends RegistrySettings {
  /** Directory of this store only; one process at a time may use it. */
  directory: string;
  /** Where layers are unpacked; `uids` are as many as preparations run at once. */
  unpacking: UnpackPlacesOptions;
  builtin: readonly BuiltinImage[];
  /** Directory of the imported images. */
  localDirectory: string;
  limits?: Partial<ImageLimits>;
  leases: CacheLeases;
  /** Called after each image that is added to the disk. */
  onStored?: () => void;
  /** Fetches and publishes an image that another runner has pulled. Resolves with undefined if there is none. */
  fetchPulled?: FetchPulled;
  log: Logger;
}

type FetchPulled = (wanted: WantedPull) => Promise<ImageEntry | undefined>;

/** One at a time for each organization. Each may have a layer on disk. */
const MAX_BUILDS = 16;
const MAX_WAITING_BUILDS = 256;
const MAX_WAITING_BUILDS_OF_OWNER = 32;

interface Flight {
  info: PreparingImage;
  listeners: Set<Listener>;
  progress: PrepareProgress | undefined;
  done: Promise<ImageEntry>;
}

type Listener = Pick<PrepareOptions, 'onStep' | 'onProgress'>;

interface Parts {
  client: RegistryClient;
  resolver: ImageResolver;
  images: StoredImages;
  places: UnpackPlaces;
  limits: ImageLimits;
  closing: AbortController;
  leases: CacheLeases;
  onStored: () => void;
  fetchPulled: FetchPulled;
  log: Logger;
}

export class ImageStore implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #slots: Slots;
  readonly #builds = new Slots('builds of images from steps', {
    maxRunning: MAX_BUILDS,
    maxRunningOfOwner: 1,
    maxWaiting: MAX_WAITING_BUILDS,
    maxWaitingOfOwner: MAX_WAITING_BUILDS_OF_OWNER,
  });
  readonly #received = new LayerSpace();
  /** Builds that run or wait. */
  readonly #building = new Set<Promise<unknown>>();
  readonly #flights = new Map<string, Flight>();

  private constructor(parts: Parts) {
    this.#parts = parts;
    const { maxConcurrentPreparations, maxWaitingPreparations } = parts.limits;
    this.#slots = new Slots('image preparations', {
      maxRunning: maxConcurrentPreparations,
      maxWaiting: maxWaitingPreparations,
      maxWaitingOfOwner: maxWaitingPreparations / 4,
    });
  }

  /** Opens the store: reads the stored images and removes the leftovers of a killed process. */
  static async open(options: ImageStoreOptions): Promise<ImageStore> {
    const { directory, mirrors, insecureRegistries, leases, log } = options;
    const onStored = options.onStored ?? (() => undefined);
    const fetchPulled = options.fetchPulled ?? (async () => undefined);
    const limits = { ...DEFAULT_IMAGE_LIMITS, ...options.limits };
    await mkdir(directory, { recursive: true });
    const places = await UnpackPlaces.open(options.unpacking);
    const images = await StoredImages.open(directory, log);
    const closing = new AbortController();
    const client = new RegistryClient({
      mirrors,
      insecureRegistries,
      environment: process.env,
      certificatesPath: SYSTEM_CERTIFICATES,
    });
    const resolver = new ImageResolver({
      client,
      builtins: joinLayouts(options.builtin, new LocalImages(options.localDirectory)),
      limits,
      isStored: (digest) => images.find(digest) !== undefined,
      isStoredFrom: (digest, reference) => images.isFrom(digest, reference),
      signal: closing.signal,
      log,
    });
    rememberReferences(resolver, images);
    return new ImageStore({
      client,
      resolver,
      images,
      places,
      limits,
      closing,
      leases,
      onStored,
      fetchPulled,
      log,
    });
  }

  /** The stored images, for the evictor. */
  get stored(): StoredImages {
    return this.#parts.images;
  }

  /**
   * Resolves the reference and prepares its image if it is not stored. Rejects with an `AppError` of the contract's
   * table, or with the signal's reason.
   */
  async prepare(reference: ImageReference, options: PrepareOptions = {}): Promise<StoredImage> {
    const { signal, onStep, access = {} } = options;
    const { resolver, images, leases } = this.#parts;
    using own = leases.open();
    this.#checkOpen();
    signal?.throwIfAborted();
    onStep?.('resolve');
    if (isBuiltImage(reference)) return this.#findBuilt(reference, options);
    const digest = await untilAborted(signal, resolver.resolve(reference, access));
    (options.lease ?? own).add(imageKey(digest));
    const name = { name: formatPinned(reference), isAnonymous: resolver.isAnonymous(reference, access) };
    const stored = images.find(digest);
    if (stored !== undefined && (isBuiltinImage(reference) || images.isFrom(digest, reference))) {
      stored.lastUse.mark();
      await images.addReference(stored, name);
      return describe(stored, reference);
    }
    this.#checkOpen();
    const entry = await this.#obtain(reference, digest, options);
    await images.addReference(entry, name);
    return describe(entry, reference);
  }

  /**
   * Makes an image of a stored one and of a layer above it, which belongs to one organization. Waits for the other builds
   * of the organization. Neither that nor the guest takes a slot from preparations.
   */
  async build(request: LayeredBuild): Promise<StoredImage> {
    const { images, places, limits, closing, leases, onStored, log } = this.#parts;
    using lease = leases.open();
    this.#checkOpen();
    const base = images.find(request.base);
    if (base === undefined)
      throw new AppError(
        'image_not_found',
        `the image ${request.base} of the sandbox is not stored any more`,
      );
    lease.add(imageKey(base.digest));
    const signal = AbortSignal.any([closing.signal, request.signal]);
    const { organization } = request.owner;
    const takeTurn: TakeTurn = (work) => this.#slots.run(signal, work, organization);
    const parts = { images, places, limits, received: this.#received, takeTurn };
    const build = () => buildLayeredImage(base, { ...request, signal }, parts);
    const building = this.#builds.run(signal, build, organization);
    this.#building.add(building);
    // An image that was given up in the last moment goes in the sweep.
    const entry = await building.finally(() => {
      this.#building.delete(building);
      onStored();
    });
    log.info({ image: entry.digest, base: base.digest, size_bytes: entry.sizeBytes }, 'image built');
    return describe(entry, builtReference(entry.digest));
  }

  /** Gives up an image that was built. Returns false if there is none. */
  async release(digest: string): Promise<boolean> {
    const isReleased = await this.#parts.images.release(digest);
    if (isReleased) this.#parts.onStored();
    return isReleased;
  }

  /** Protects an image of an organization from eviction, or no longer. Returns false if it is not stored. */
  async keep(digest: string, organization: string, isKept: boolean): Promise<boolean> {
    const { images, onStored } = this.#parts;
    const entry = images.find(digest);
    if (entry?.owner?.organization !== organization) return false;
    const isStored = await images.keep(entry, isKept);
    if (!isKept) onStored();
    return isStored;
  }

  #findBuilt(reference: ImageReference, { lease, organization = '' }: PrepareOptions): StoredImage {
    const { digest = '' } = reference;
    const entry = this.#parts.images.findOwned(digest, organization);
    if (entry === undefined) {
      const name = formatPinned(reference);
      throw new AppError(
        'image_not_found',
        `there is no built image ${name}; build it again, or list the images`,
      );
    }
    lease?.add(imageKey(digest));
    entry.lastUse.mark();
    return describe(entry, reference);
  }

  /** Returns one row for each reference that points to a stored image now. */
  list({ withBuilt = false } = {}): StoredImage[] {
    const shared = [...this.#parts.images.values()].filter(
      ({ owner, isReleased }) => owner === undefined || (withBuilt && !isReleased),
    );
    const rows = Array.from(newestHolders(shared), ([name, entry]) => describeNamed(entry, name));
    return rows.sort((a, b) => (a.reference < b.reference ? -1 : 1));
  }

  listOwned(asked: OwnedImagesQuery): Promise<OwnedPage> {
    const { images, leases } = this.#parts;
    return listOwned(images, leases, asked);
  }

  /** Lists the images that are pulled, flattened or wait for a slot. */
  listPreparing(): PreparingImage[] {
    return Array.from(this.#flights.values(), ({ info }) => ({ ...info }));
  }

  /** Ends all preparations and builds; they leave nothing. */
  async close(): Promise<void> {
    this.#parts.closing.abort(new AppError('unavailable', 'the image store is shutting down'));
    const flights = [...this.#flights.values()].map(({ done }) => done);
    await Promise.allSettled([...flights, ...this.#building]);
    this.#parts.client.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #checkOpen(): void {
    this.#parts.closing.signal.throwIfAborted();
  }

  #startFlight(reference: ImageReference, digest: string, options: PrepareOptions): Flight {
    const { access = {}, organization } = options;
    const info: PreparingImage = {
      reference: formatImageReference({ ...reference, digest }),
      digest,
      step: 'resolve',
      startedAt: new Date(),
    };
    const listeners: Flight['listeners'] = new Set();
    const onStep = (step: PrepareStep) => {
      info.step = step;
      flight.progress = undefined;
      for (const listener of listeners) listener.onStep?.(step);
    };
    const onProgress = (progress: PrepareProgress) => {
      flight.progress = progress;
      for (const listener of listeners) listener.onProgress?.(progress);
    };
    const key = flightKey(reference, digest);
    // Waits for flights of the same image from other repositories, so that it is not made twice.
    const earlier = [...this.#flights.values()].filter((other) => other.info.digest === digest);
    const done = Promise.allSettled(earlier.map((other) => other.done))
      .then(() =>
        this.#slots.run(
          this.#parts.closing.signal,
          () => this.#make(reference, digest, { access, onStep, onProgress }),
          organization,
        ),
      )
      .finally(() => this.#flights.delete(key));
    // All callers may have left, so the failure is also logged.
    done.catch((error: unknown) =>
      this.#parts.log.warn({ err: error, image: info.reference }, 'image preparation failed'),
    );
    const flight: Flight = { info, listeners, progress: undefined, done };
    this.#flights.set(key, flight);
    return flight;
  }

  async #obtain(reference: ImageReference, digest: string, options: PrepareOptions): Promise<ImageEntry> {
    const underWay = this.#flights.get(flightKey(reference, digest));
    try {
      if (underWay !== undefined) return await this.#join(underWay, options);
    } catch (error) {
      // The access of the caller that started the flight may have ended, which says nothing about this caller's.
      if (!(error instanceof AppError && error.code === 'image_not_found')) throw error;
    }
    this.#checkOpen();
    const own = this.#flights.get(flightKey(reference, digest));
    return this.#join(own ?? this.#startFlight(reference, digest, options), options);
  }

  async #join(flight: Flight, options: PrepareOptions): Promise<ImageEntry> {
    const { onStep, onProgress, signal } = options;
    if (flight.info.step !== 'resolve') onStep?.(flight.info.step);
    if (flight.progress !== undefined) onProgress?.(flight.progress);
    flight.listeners.add(options);
    try {
      return await untilAborted(signal, flight.done);
    } finally {
      flight.listeners.delete(options);
    }
  }

  async #make(
    reference: ImageReference,
    digest: string,
    how: Required<Listener> & { access: ImageAccess },
  ): Promise<ImageEntry> {
    const { access, onStep, onProgress } = how;
    const { resolver, images, leases, places, limits, closing, log } = this.#parts;
    const { signal } = closing;
    const startedAt = performance.now();
    using lease = leases.open();
    lease.add(imageKey(digest));
    const image = await resolver.findPullable(reference, digest, access);
    const stored = images.find(digest);
    if (stored !== undefined) {
      onStep('pull');
      const meter = new ProgressMeter('pull', compressedBytes(image.manifest), onProgress);
      await proveImage(image, { limits, signal, onBytes: (bytes) => meter.add(bytes) });
      return stored;
    }
    const name = formatPinned(reference);
    const isAnonymous = resolver.isAnonymous(reference, access);
    if (!isBuiltinImage(reference)) {
      const onFound = () => onStep('pull');
      const wanted = { reference, digest, name: { name, isAnonymous }, onFound };
      const fetched = await this.#parts.fetchPulled(wanted);
      if (fetched !== undefined) return fetched;
    }
    await using staging = await images.makeStaging();
    const stagingPath = staging.path;
    const prepared = await prepareImage(image, { places, limits, stagingPath, signal, onStep, onProgress });
    const { sizeBytes, config, acls } = prepared;
    const entry = await images.publish(prepared.path, {
      digest,
      sizeBytes,
      config,
      reference: { name, isAnonymous },
    });
    const elapsedMs = Math.round(performance.now() - startedAt);
    log.info({ image: name, digest, size_bytes: sizeBytes, elapsed_ms: elapsedMs }, 'image prepared');
    if (acls > 0)
      log.warn({ image: name, digest, entries: acls }, 'access control lists of the image are left out');
    this.#parts.onStored();
    return entry;
  }
}

/** Key of a flight: callers share it if they want the same image of the same repository. */
function flightKey({ registry, repository }: ImageReference, digest: string): string {
  return `${registry}/${repository}@${digest}`;
}

/** Restores the anonymous references in order, so that the newest one is kept for each name. */
function rememberReferences(resolver: ImageResolver, images: StoredImages): void {
  const known = [...images.values()].flatMap((entry) =>
    [...entry.anonymous].map((name) => ({ name, at: entry.references.get(name), digest: entry.digest })),
  );
  known.sort((a, b) => (a.at?.getTime() ?? 0) - (b.at?.getTime() ?? 0));
  for (const { name, digest } of known) resolver.remember(parseImageReference(name), digest);
}

function describe(entry: ImageEntry, reference: ImageReference): StoredImage {
  return describeNamed(entry, formatImageReference({ ...reference, digest: entry.digest }));
}

function describeNamed(entry: ImageEntry, name: string): StoredImage {
  const { digest, path, sizeBytes, config, preparedAt } = entry;
  const reference = `${name.replace(/@.*$/u, '')}@${digest}`;
  return { reference, digest, path, sizeBytes, config, preparedAt };
}
