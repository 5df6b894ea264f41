/**
 * References to digests. An answer of a registry for a tag holds for a short time, so that warm creates ask nobody; one for a digest
 * holds for ever. When the registry fails, the last answer for this very tag still serves if its image is stored.
 */
import { AppError, formatImageReference, isBuiltinImage, type ImageReference } from '@coppice/contract';
import type { Logger } from 'pino';
import type { ImageLimits } from './image-limits.ts';
import { checkManifest, digestOf, parseManifest, selectPlatform, type ImageManifest } from './manifest.ts';
import { findLayoutImage, readLayoutBlob, type LayoutIndexer } from './oci-source.ts';
import type { RegistryGuard } from './registry-guard.ts';
import type { ImageSource, Skopeo } from './skopeo.ts';

export interface ResolverOptions {
  skopeo: Skopeo;
  guard: RegistryGuard;
  builtins: LayoutIndexer;
  limits: ImageLimits;
  isStored: (digest: string) => boolean;
  /** Whether the image of this digest is stored and came from this repository: the digest alone proves no right to it. */
  isStoredFrom: (digest: string, reference: ImageReference) => boolean;
  /** Ends what is under way when the store is closed. */
  signal: AbortSignal;
  log: Logger;
}

/** An image that can be pulled, looked at before anything of it is downloaded. */
export interface PullableImage {
  source: ImageSource;
  manifest: ImageManifest;
}

interface Answer {
  digest: string;
  /** On the monotonic clock. */
  askedAtMs: number;
}

const MAX_ANSWERS = 4096;

export class ImageResolver {
  readonly #options: ResolverOptions;
  readonly #answers = new Map<string, Answer>();
  readonly #underWay = new Map<string, Promise<string>>();

  constructor(options: ResolverOptions) {
    this.#options = options;
  }

  /** What an earlier run of the service learned: used only when the registry does not answer. */
  remember(name: string, digest: string): void {
    this.#setAnswer(name, { digest, askedAtMs: Number.NEGATIVE_INFINITY });
  }

  /** The digest of the image's manifest for our platform. */
  async resolve(reference: ImageReference): Promise<string> {
    if (isBuiltinImage(reference)) return this.#resolveBuiltin(reference);
    const { digest } = reference;
    if (digest !== undefined && this.#options.isStoredFrom(digest, reference)) return digest;
    const name = formatPinned(reference);
    const answer = this.#answers.get(name);
    if (answer !== undefined && this.#isFresh(reference, answer)) return answer.digest;
    const underWay = this.#underWay.get(name);
    if (underWay !== undefined) return underWay;
    const asked = this.#askOrRecall(reference, name).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, asked);
    return asked;
  }

  /** Where `digest`, an answer of {@link resolve} for `reference`, is pulled from. Throws if its manifest rules it out. */
  async findPullable(reference: ImageReference, digest: string): Promise<PullableImage> {
    const pullable = isBuiltinImage(reference)
      ? await this.#findBuiltin(reference, digest)
      : await this.#findRemote(reference, digest);
    checkManifest(pullable.source.name, pullable.manifest, this.#options.limits);
    return pullable;
  }

  #isFresh(reference: ImageReference, answer: Answer): boolean {
    return (
      reference.digest !== undefined || performance.now() - answer.askedAtMs < this.#options.limits.tagTtlMs
    );
  }

  #setAnswer(name: string, answer: Answer): void {
    this.#answers.delete(name);
    this.#answers.set(name, answer);
    const oldest = this.#answers.keys().next();
    if (this.#answers.size > MAX_ANSWERS && !oldest.done) this.#answers.delete(oldest.value);
  }

  async #askOrRecall(reference: ImageReference, name: string): Promise<string> {
    try {
      const digest = await this.#ask(reference, name);
      this.#setAnswer(name, { digest, askedAtMs: performance.now() });
      return digest;
    } catch (error) {
      const known = this.#answers.get(name);
      const isDown = error instanceof AppError && error.code === 'registry_unavailable';
      if (!isDown || known === undefined || !this.#options.isStored(known.digest)) throw error;
      this.#options.log.warn(
        { err: error, image: name, digest: known.digest },
        'registry fails, the stored image is used',
      );
      // Fresh again: a registry that is down is asked once in that time, not by every create.
      this.#setAnswer(name, { digest: known.digest, askedAtMs: performance.now() });
      return known.digest;
    }
  }

  async #ask(reference: ImageReference, name: string): Promise<string> {
    await this.#options.guard.check(reference.registry);
    const data = await this.#inspect({ transport: 'docker', reference, name });
    if (reference.digest !== undefined) checkDigest(name, data, reference.digest);
    const parsed = parseManifest(name, data);
    return parsed.kind === 'index' ? selectPlatform(name, parsed.index) : digestOf(data);
  }

  #inspect(source: ImageSource): Promise<Buffer> {
    const { limits, signal, skopeo } = this.#options;
    return skopeo.inspectRaw(source, {
      timeoutMs: limits.resolveTimeoutMs,
      maxBytes: limits.maxManifestBytes,
      signal,
    });
  }

  async #findRemote(reference: ImageReference, digest: string): Promise<PullableImage> {
    await this.#options.guard.check(reference.registry);
    const name = formatImageReference(reference);
    const source: ImageSource = { transport: 'docker', reference: { ...reference, digest }, name };
    const data = await this.#inspect(source);
    checkDigest(name, data, digest);
    return { source, manifest: requireImage(name, data) };
  }

  async #resolveBuiltin(reference: ImageReference): Promise<string> {
    const name = formatImageReference(reference);
    const { digest } = await this.#findLayout(reference);
    if (reference.digest !== undefined && reference.digest !== digest) {
      throw new AppError(
        'image_not_found',
        `the built-in image ${name} does not have this digest, it is ${digest}`,
      );
    }
    if (this.#options.isStored(digest)) return digest;
    const parsed = parseManifest(name, await this.#readLayout(reference, digest));
    return parsed.kind === 'index' ? selectPlatform(name, parsed.index) : digest;
  }

  async #findBuiltin(reference: ImageReference, digest: string): Promise<PullableImage> {
    const name = formatImageReference(reference);
    const { layoutPath, tag } = await this.#findLayout(reference);
    const manifest = requireImage(name, await this.#readLayout(reference, digest));
    return { source: { transport: 'oci', layoutPath, tag, name }, manifest };
  }

  async #findLayout(reference: ImageReference): Promise<{ layoutPath: string; digest: string; tag: string }> {
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
    return {
      layoutPath: builtin.layoutPath,
      ...(await findLayoutImage(builtin.layoutPath, name, reference.tag ?? '')),
    };
  }

  async #readLayout(reference: ImageReference, digest: string): Promise<Buffer> {
    const { layoutPath } = await this.#findLayout(reference);
    const data = await readLayoutBlob(layoutPath, digest);
    checkDigest(formatImageReference(reference), data, digest);
    return data;
  }
}

/** What decides: a tag beside a digest means nothing and must not become a name of its own. */
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
