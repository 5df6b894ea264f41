/**
 * Resolves references to digests for one access. The resolver keeps an answer of a registry only for the access that
 * got it. An answer is valid for a short time, so that warm creates need no request. A digest is checked with the
 * registry like a tag, as knowing a digest proves no right to its image. When the registry fails, the last answer to
 * this access still serves if its image is stored.
 */
import { AppError, formatImageReference, isBuiltinImage, type ImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import type { ImageAccess } from '../../../lib/protocol/runner-protocol.ts';
import { SingleFlight } from '../../../lib/waiting/single-flight.ts';
import type { ImageLimits } from '../layers/image-limits.ts';
import type { ImageSource } from './image-source.ts';
import { checkManifest, digestOf, parseManifest, selectPlatform, type ImageManifest } from './manifest.ts';
import { findLayoutImage, readLayoutBlob, readLayoutManifest, type LayoutIndexer } from './oci-source.ts';
import type { ImageAsk, RegistryClient } from '../registry/registry-client.ts';
import { ResolverAnswers, type Answer } from './resolver-answers.ts';

export interface ResolverOptions {
  client: RegistryClient;
  builtins: LayoutIndexer;
  limits: ImageLimits;
  isStored: (digest: string) => boolean;
  /** Whether the image of this digest is stored and was pulled from this repository. */
  isStoredFrom: (digest: string, reference: ImageReference) => boolean;
  /** Ends requests under way when the store is closed. */
  signal: AbortSignal;
  log: Logger;
}

/** An image that can be pulled; its manifest is checked before its blobs are downloaded. */
export interface PullableImage {
  source: ImageSource;
  manifest: ImageManifest;
}

export class ImageResolver {
  readonly #options: ResolverOptions;
  readonly #answers: ResolverAnswers;
  readonly #flights = new SingleFlight<string>();

  constructor(options: ResolverOptions) {
    this.#options = options;
    this.#answers = new ResolverAnswers(options.limits);
  }

  /** Restores an answer to anonymous callers from an earlier run; it is used only when the registry does not answer. */
  remember(reference: ImageReference, digest: string): void {
    const answer = { digest, topDigest: undefined, confirmedAtMs: undefined };
    this.#answers.set(this.#identify(reference, {}), reference, answer);
  }

  /** Whether the access is anonymous for the registry, with or without credentials. */
  isAnonymous(reference: ImageReference, access: ImageAccess): boolean {
    return isBuiltinImage(reference) || this.#identify(reference, access) === this.#identify(reference, {});
  }

  /** Resolves a reference to the digest of the image's manifest for this platform. */
  async resolve(reference: ImageReference, access: ImageAccess): Promise<string> {
    if (isBuiltinImage(reference)) return this.#resolveBuiltin(reference);
    const identity = this.#identify(reference, access);
    const fresh = this.#answers.findFresh(identity, reference);
    if (fresh !== undefined) return fresh.digest;
    return this.#flights.run(`${identity} ${formatPinned(reference)}`, () =>
      this.#askOrRecall(identity, reference, access),
    );
  }

  /**
   * Finds the source of `digest`, an answer of {@link resolve}. Throws `invalid_image` if its manifest is not allowed.
   */
  async findPullable(reference: ImageReference, digest: string, access: ImageAccess): Promise<PullableImage> {
    const pullable = isBuiltinImage(reference)
      ? await this.#findBuiltin(reference, digest)
      : await this.#findRemote(reference, digest, access);
    checkManifest(pullable.source.name, pullable.manifest, this.#options.limits);
    return pullable;
  }

  #identify({ registry }: ImageReference, { credentials }: ImageAccess): string {
    return this.#options.client.endpoints.identify(registry, credentials);
  }

  async #askOrRecall(identity: string, reference: ImageReference, access: ImageAccess): Promise<string> {
    try {
      const answer = await this.#ask(identity, reference, access);
      this.#answers.set(identity, reference, answer);
      return answer.digest;
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      if (error.code === 'image_not_found') this.#answers.forget(identity, reference);
      if (error.code !== 'registry_unavailable') throw error;
      const isAnonymous = this.isAnonymous(reference, access);
      const known = this.#answers.recall(identity, reference, isAnonymous);
      if (known === undefined || !this.#options.isStoredFrom(known.digest, reference)) throw error;
      const context = { err: error, image: formatPinned(reference), digest: known.digest };
      this.#options.log.warn(context, 'the registry fails; the stored image is used');
      return known.digest;
    }
  }

  async #ask(identity: string, reference: ImageReference, access: ImageAccess): Promise<Answer> {
    const ask = askOf(reference, access);
    const signal = AbortSignal.any([
      this.#options.signal,
      AbortSignal.timeout(this.#options.limits.resolveTimeoutMs),
    ]);
    const tagOrDigest = reference.digest ?? reference.tag ?? '';
    const known = this.#answers.find(identity, reference);
    if (known?.topDigest !== undefined) {
      const { topDigest } = known;
      const said = await this.#inTime(ask, () =>
        this.#options.client.findManifestDigest(ask, tagOrDigest, signal),
      );
      if (said === topDigest) return { ...known, confirmedAtMs: performance.now() };
    }
    const data = await this.#getManifest(ask, tagOrDigest, signal);
    const topDigest = digestOf(data);
    if (reference.digest !== undefined) checkDigest(ask.name, data, reference.digest);
    const parsed = parseManifest(ask.name, data);
    const digest = parsed.kind === 'index' ? selectPlatform(ask.name, parsed.index) : topDigest;
    return { digest, topDigest, confirmedAtMs: performance.now() };
  }

  async #getManifest(ask: ImageAsk, tagOrDigest: string, signal: AbortSignal): Promise<Buffer> {
    const maxBytes = this.#options.limits.maxManifestBytes;
    return this.#inTime(ask, () => this.#options.client.getManifest(ask, tagOrDigest, { maxBytes, signal }));
  }

  async #inTime<T>(ask: ImageAsk, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof DOMException && error.name === 'TimeoutError')) throw error;
      throw new AppError(
        'registry_unavailable',
        `image ${ask.name}: the registry ${ask.reference.registry} did not answer in time`,
        { cause: error },
      );
    }
  }

  async #findRemote(reference: ImageReference, digest: string, access: ImageAccess): Promise<PullableImage> {
    const { client, limits, signal } = this.#options;
    const ask = askOf(reference, access);
    const inTime = AbortSignal.any([signal, AbortSignal.timeout(limits.resolveTimeoutMs)]);
    const data = await this.#getManifest(ask, digest, inTime);
    checkDigest(ask.name, data, digest);
    const source: ImageSource = {
      name: ask.name,
      readBlob: (blob, signal) => client.readBlob(ask, blob, signal),
    };
    return { source, manifest: requireImage(ask.name, data) };
  }

  async #resolveBuiltin(reference: ImageReference): Promise<string> {
    const name = formatImageReference(reference);
    const { digest } = await this.#findLayout(reference);
    if (reference.digest !== undefined && reference.digest !== digest) {
      throw new AppError(
        'image_not_found',
        `the built-in image ${name} does not have this digest; its digest is ${digest}`,
      );
    }
    if (this.#options.isStored(digest)) return digest;
    const parsed = parseManifest(name, await this.#readLayout(reference, digest));
    return parsed.kind === 'index' ? selectPlatform(name, parsed.index) : digest;
  }

  async #findBuiltin(reference: ImageReference, digest: string): Promise<PullableImage> {
    const name = formatImageReference(reference);
    const { layoutPath } = await this.#findLayout(reference);
    const manifest = requireImage(name, await this.#readLayout(reference, digest));
    const source: ImageSource = {
      name,
      readBlob: (blob, signal) => readLayoutBlob(layoutPath, blob, signal),
    };
    return { source, manifest };
  }

  async #findLayout(reference: ImageReference): Promise<{ layoutPath: string; digest: string }> {
    const { digest: _, ...named } = reference;
    const name = formatImageReference(named);
    const builtin = this.#options.builtins.get(name);
    if (builtin === undefined) {
      const names = [...this.#options.builtins.keys()].join(', ');
      throw new AppError(
        'image_not_found',
        `there is no built-in image ${name}; there is ${names === '' ? 'none' : names}`,
      );
    }
    const { layoutPath } = builtin;
    return { layoutPath, digest: await findLayoutImage(layoutPath, name, reference.tag ?? '') };
  }

  async #readLayout(reference: ImageReference, digest: string): Promise<Buffer> {
    const { layoutPath } = await this.#findLayout(reference);
    const data = await readLayoutManifest(layoutPath, digest);
    checkDigest(formatImageReference(reference), data, digest);
    return data;
  }
}

function askOf(reference: ImageReference, { credentials }: ImageAccess): ImageAsk {
  return { reference, name: formatPinned(reference), credentials };
}

/** Formats the decisive part of a reference: next to a digest a tag means nothing and must not become a name. */
export function formatPinned(reference: ImageReference): string {
  if (reference.digest === undefined) return formatImageReference(reference);
  const { tag: _, ...pinned } = reference;
  return formatImageReference(pinned);
}

function requireImage(name: string, data: Buffer): ImageManifest {
  const parsed = parseManifest(name, data);
  if (parsed.kind === 'image') return parsed.manifest;
  throw new AppError('invalid_image', `image ${name}: its index leads to a second index`);
}

function checkDigest(name: string, data: Buffer, digest: string): void {
  const actual = digestOf(data);
  if (actual === digest) return;
  throw new AppError(
    'registry_unavailable',
    `image ${name}: the manifest for ${digest} has the digest ${actual}`,
  );
}
