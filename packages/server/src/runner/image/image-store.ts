/**
 * Images of this runner: one read-only squashfs file per digest, prepared once and kept.
 *
 *   prepare(reference) ──► resolve ──► stored? ──► answer
 *                                        │ no
 *                                        └──► one flight per digest: pull ──► flatten ──► publish ──► answer to all who wait
 *
 * Flights are detached: a caller that leaves stops only its own waiting.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, formatImageReference, type ImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import { imageKey, type CacheLeases } from '../cache/cache-leases.ts';
import { DEFAULT_IMAGE_LIMITS, type ImageLimits } from './image-limits.ts';
import type { PrepareOptions, PrepareStep, PreparingImage, StoredImage } from './image-store.types.ts';
import { LocalImages } from './local/local-images.ts';
import { joinLayouts, type BuiltinImage } from './oci-source.ts';
import { prepareImage } from './preparation.ts';
import type { RegistrySettings } from './registries-conf.ts';
import { RegistryGuard } from './registry-guard.ts';
import { ImageResolver, formatPinned } from './resolver.ts';
import { hasProxy, Skopeo } from './skopeo.ts';
import { Slots } from './slots.ts';
import { StoredImages, newestHolder, type ImageEntry } from './stored-images.ts';

export interface ImageStoreOptions extends RegistrySettings {
  /** Of the store alone. One process at a time. */
  directory: string;
  /** Programs, by name or path. */
  tools: { skopeo: string; tar2sqfs: string };
  builtin: readonly BuiltinImage[];
  /** Of the images that were imported. */
  localDirectory: string;
  limits?: Partial<ImageLimits>;
  leases: CacheLeases;
  /** Told of each image that was added to those on disk. */
  onStored?: () => void;
  log: Logger;
}

interface Flight {
  info: PreparingImage;
  listeners: Set<(step: PrepareStep) => void>;
  done: Promise<ImageEntry>;
}

interface Parts {
  skopeo: Skopeo;
  resolver: ImageResolver;
  images: StoredImages;
  tar2sqfs: string;
  limits: ImageLimits;
  closing: AbortController;
  leases: CacheLeases;
  onStored: () => void;
  log: Logger;
}

export class ImageStore implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #slots: Slots;
  readonly #flights = new Map<string, Flight>();

  private constructor(parts: Parts) {
    this.#parts = parts;
    const { maxConcurrentPreparations, maxWaitingPreparations } = parts.limits;
    this.#slots = new Slots('image preparations', {
      maxRunning: maxConcurrentPreparations,
      maxWaiting: maxWaitingPreparations,
    });
  }

  /** Reads what is stored and sweeps what a killed process left. */
  static async open(options: ImageStoreOptions): Promise<ImageStore> {
    const { directory, tools, mirrors, insecureRegistries, leases, log } = options;
    const onStored = options.onStored ?? (() => undefined);
    const limits = { ...DEFAULT_IMAGE_LIMITS, ...options.limits };
    const skopeoDirectory = join(directory, 'skopeo');
    await mkdir(skopeoDirectory, { recursive: true });
    const skopeo = await Skopeo.open({
      tool: tools.skopeo,
      directory: skopeoDirectory,
      registries: { mirrors, insecureRegistries },
    });
    const images = await StoredImages.open(directory, log);
    const closing = new AbortController();
    const resolver = new ImageResolver({
      skopeo,
      guard: new RegistryGuard({
        configured: [...Object.keys(mirrors), ...insecureRegistries],
        isProxied: hasProxy(),
      }),
      builtins: joinLayouts(options.builtin, new LocalImages(options.localDirectory)),
      limits,
      isStored: (digest) => images.find(digest) !== undefined,
      isStoredFrom: (digest, reference) => images.isFrom(digest, reference),
      signal: closing.signal,
      log,
    });
    rememberReferences(resolver, images);
    const { tar2sqfs } = tools;
    return new ImageStore({ skopeo, resolver, images, tar2sqfs, limits, closing, leases, onStored, log });
  }

  /** For whoever bounds what they take on disk. */
  get stored(): StoredImages {
    return this.#parts.images;
  }

  /**
   * Resolves the reference and makes its image if it is not stored. Rejects with an `AppError` of the contract's table, or with
   * the signal's reason.
   */
  async prepare(reference: ImageReference, options: PrepareOptions = {}): Promise<StoredImage> {
    const { signal, onStep } = options;
    using own = this.#parts.leases.open();
    this.#checkOpen();
    signal?.throwIfAborted();
    onStep?.('resolve');
    const digest = await untilAborted(signal, this.#parts.resolver.resolve(reference));
    (options.lease ?? own).add(imageKey(digest));
    const name = formatPinned(reference);
    const stored = this.#parts.images.find(digest);
    if (stored !== undefined) {
      stored.lastUse.mark();
      await this.#parts.images.addReference(stored, name);
      return describe(stored, reference);
    }
    this.#checkOpen();
    const flight = this.#flights.get(digest) ?? this.#startFlight(reference, digest);
    const entry = await this.#join(flight, options);
    await this.#parts.images.addReference(entry, name);
    return describe(entry, reference);
  }

  /** One row for each reference that means a stored image now. */
  list(): StoredImage[] {
    const rows: StoredImage[] = [];
    for (const entry of this.#parts.images.values()) {
      for (const name of entry.references.keys()) {
        if (newestHolder(this.#parts.images.values(), name) !== entry) continue;
        rows.push(describeNamed(entry, name));
      }
    }
    return rows.sort((a, b) => (a.reference < b.reference ? -1 : 1));
  }

  /** What is being pulled or flattened, or waits for its turn. */
  listPreparing(): PreparingImage[] {
    return Array.from(this.#flights.values(), ({ info }) => ({ ...info }));
  }

  /** Ends what is under way; nothing of it stays. */
  async close(): Promise<void> {
    this.#parts.closing.abort(new AppError('unavailable', 'the image store is shutting down'));
    await Promise.allSettled([...this.#flights.values()].map(({ done }) => done));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #checkOpen(): void {
    this.#parts.closing.signal.throwIfAborted();
  }

  #startFlight(reference: ImageReference, digest: string): Flight {
    const info: PreparingImage = {
      reference: formatImageReference({ ...reference, digest }),
      digest,
      step: 'resolve',
      startedAt: new Date(),
    };
    const listeners: Flight['listeners'] = new Set();
    const onStep = (step: PrepareStep) => {
      info.step = step;
      for (const listener of listeners) listener(step);
    };
    const { signal } = this.#parts.closing;
    const done = this.#slots
      .run(signal, () => this.#make(reference, digest, onStep))
      .finally(() => this.#flights.delete(digest));
    // All callers may have left: then only the log hears of a failure.
    done.catch((error: unknown) =>
      this.#parts.log.warn({ err: error, image: info.reference }, 'image preparation failed'),
    );
    const flight = { info, listeners, done };
    this.#flights.set(digest, flight);
    return flight;
  }

  async #join(flight: Flight, { onStep, signal }: PrepareOptions): Promise<ImageEntry> {
    if (onStep === undefined) return untilAborted(signal, flight.done);
    if (flight.info.step !== 'resolve') onStep(flight.info.step);
    flight.listeners.add(onStep);
    try {
      return await untilAborted(signal, flight.done);
    } finally {
      flight.listeners.delete(onStep);
    }
  }

  async #make(
    reference: ImageReference,
    digest: string,
    onStep: (step: PrepareStep) => void,
  ): Promise<ImageEntry> {
    const { resolver, images, skopeo, tar2sqfs, limits, closing, log } = this.#parts;
    const startedAt = performance.now();
    using lease = this.#parts.leases.open();
    lease.add(imageKey(digest));
    const image = await resolver.findPullable(reference, digest);
    await using staging = await images.makeStaging();
    const { signal } = closing;
    const prepared = await prepareImage(image, {
      skopeo,
      tar2sqfs,
      limits,
      stagingPath: staging.path,
      signal,
      onStep,
    });
    const { sizeBytes, config, acls } = prepared;
    const name = formatPinned(reference);
    const entry = await images.publish(prepared.path, { digest, sizeBytes, config, reference: name });
    const elapsedMs = Math.round(performance.now() - startedAt);
    log.info({ image: name, digest, size_bytes: sizeBytes, elapsed_ms: elapsedMs }, 'image prepared');
    if (acls > 0)
      log.warn({ image: name, digest, entries: acls }, 'access control lists of the image are left out');
    this.#parts.onStored();
    return entry;
  }
}

/** Newest last, so that it is the one that is remembered. */
function rememberReferences(resolver: ImageResolver, images: StoredImages): void {
  const known = [...images.values()].flatMap((entry) =>
    [...entry.references].map(([name, at]) => ({ name, at, digest: entry.digest })),
  );
  known.sort((a, b) => a.at.getTime() - b.at.getTime());
  for (const { name, digest } of known) resolver.remember(name, digest);
}

function describe(entry: ImageEntry, reference: ImageReference): StoredImage {
  return describeNamed(entry, formatImageReference({ ...reference, digest: entry.digest }));
}

function describeNamed(entry: ImageEntry, name: string): StoredImage {
  const { digest, path, sizeBytes, config, preparedAt } = entry;
  const reference = `${name.replace(/@.*$/u, '')}@${digest}`;
  return { reference, digest, path, sizeBytes, config, preparedAt };
}

/** As `work`, but rejects when the signal is aborted. The work goes on. */
async function untilAborted<T>(signal: AbortSignal | undefined, work: Promise<T>): Promise<T> {
  if (signal === undefined) return work;
  const { promise, reject } = Promise.withResolvers<never>();
  const leave = () => reject(signal.reason as Error);
  if (signal.aborted) leave();
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}
