/**
 * Keeps images and templates within a limit of bytes.
 *
 *   something was stored, or is no longer used ──► sweep ──► evicts stale templates
 *                                                       └──► over the limit: evicts the least recently used
 *
 * The evictor never evicts what a lease holds, so images and templates in use can exceed the limit. It evicts templates
 * together with their image: the saved memory of a guest is bound to the exact bytes of the image's file.
 */
import type { Logger } from 'pino';
import type { CacheLeases } from './cache-leases.ts';
import { imageKey, templateKey } from './cache-leases.ts';
import type { LastUse } from './last-use.ts';

export interface CachedImage {
  digest: string;
  sizeBytes: number;
  preparedAt: Date;
  lastUse: LastUse;
  /** Set for an image that was built from steps and has a name: nothing can make it again, so it is no part of the cache. */
  isKept?: boolean;
  /** Set for a built image that its owner has deleted. */
  isReleased?: boolean;
}

export interface CachedTemplate {
  key: string;
  sizeBytes: number;
  lastUse: LastUse;
  /** Undefined for a guest that was booted without an image, from which templates of any image are made. */
  imageDigest: string | undefined;
  /** `preparedAt` of that image, in ISO 8601. */
  imagePreparedAt: string | undefined;
  /** Why the template can serve no create any more; undefined while it can. */
  staleReason: string | undefined;
}

export interface CachedThings<T> {
  values(): Iterable<T>;
  /** Hides the thing from look-ups at once; settles when its bytes are free. */
  evict(name: string): Promise<void>;
}

export interface CacheEvictorOptions {
  /** 0 is no limit. */
  maxBytes: number;
  leases: CacheLeases;
  images: CachedThings<CachedImage>;
  templates: CachedThings<CachedTemplate>;
  onTemplateEvicted: (key: string) => void;
  log: Logger;
}

interface Candidate {
  what: 'image' | 'template';
  name: string;
  sizeBytes: number;
  lastUsedMs: number;
  isHeld: boolean;
}

export class CacheEvictor {
  readonly #options: CacheEvictorOptions;
  /** Things whose removal failed, for example by a disk error; this process does not try again. */
  readonly #stuck = new Set<string>();
  #sweeping: Promise<void> | undefined;
  #sweepAgain = false;
  #closed = false;

  constructor(options: CacheEvictorOptions) {
    this.#options = options;
    options.leases.whenIdle((key) => {
      this.#markUse(key);
      this.request();
    });
  }

  /** Starts a sweep, or another one after the one that runs. */
  request(): void {
    if (this.#sweeping !== undefined) {
      this.#sweepAgain = true;
      return;
    }
    if (this.#closed) return;
    this.#sweeping = this.#sweep().finally(() => {
      this.#sweeping = undefined;
      if (!this.#sweepAgain) return;
      this.#sweepAgain = false;
      this.request();
    });
  }

  /** Settles when no sweep runs. */
  async settled(): Promise<void> {
    while (this.#sweeping !== undefined) await this.#sweeping;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.settled();
  }

  /** Sets the last use of a thing that is no longer in use to now. */
  #markUse(key: string): void {
    const { images, templates } = this.#options;
    for (const image of images.values()) if (imageKey(image.digest) === key) image.lastUse.mark();
    for (const each of templates.values()) if (templateKey(each.key) === key) each.lastUse.mark();
  }

  async #sweep(): Promise<void> {
    for (const { template, reason } of this.#findStale()) {
      const { key: name, sizeBytes, lastUse } = template;
      await this.#evict(
        { what: 'template', name, sizeBytes, lastUsedMs: lastUse.ms, isHeld: this.#isHeld(template) },
        reason,
      );
    }
    for (const { name } of this.#findReleased()) {
      // It may have got a name again while another one was removed.
      const image = this.#findReleased().find((one) => one.name === name);
      if (image !== undefined) await this.#evict(image, 'its owner has deleted it');
    }
    for (let next = this.#nextToGo(); next !== undefined; next = this.#nextToGo()) {
      const { totalBytes } = this;
      await this.#evict(
        next,
        `images and templates take ${totalBytes} bytes, ${this.#options.maxBytes} are allowed`,
      );
    }
  }

  #nextToGo(): Candidate | undefined {
    const { maxBytes } = this.#options;
    const isOverLimit = maxBytes > 0 && this.totalBytes > maxBytes;
    return isOverLimit && !this.#closed ? this.#oldest() : undefined;
  }

  get totalBytes(): number {
    const { images, templates } = this.#options;
    const cached = [...images.values()].filter(({ isKept }) => isKept !== true);
    const all = [...cached, ...templates.values()];
    return all.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  }

  #findReleased(): Candidate[] {
    const { images, templates, leases } = this.#options;
    const isInUse = (digest: string): boolean =>
      leases.isHeld(imageKey(digest)) ||
      [...templates.values()].some((each) => each.imageDigest === digest && this.#isHeld(each));
    return [...images.values()]
      .filter(({ isReleased }) => isReleased === true)
      .map(({ digest: name, sizeBytes, lastUse }) => ({
        what: 'image',
        name,
        sizeBytes,
        lastUsedMs: lastUse.ms,
        isHeld: isInUse(name),
      }));
  }

  #findStale(): { template: CachedTemplate; reason: string }[] {
    const { images, templates } = this.#options;
    const preparedAt = new Map(
      Array.from(images.values(), (image) => [image.digest, image.preparedAt.toISOString()]),
    );
    return Array.from(templates.values()).flatMap((template) => {
      const { imageDigest, imagePreparedAt } = template;
      const isOfImage = imageDigest === undefined || preparedAt.get(imageDigest) === imagePreparedAt;
      const reason = template.staleReason ?? (isOfImage ? undefined : 'its image is gone or was made again');
      return reason === undefined ? [] : [{ template, reason }];
    });
  }

  /** Of a template and an image used at the same time, returns the template: it costs less to make again. */
  #oldest(): Candidate | undefined {
    const { images, templates, leases } = this.#options;
    const candidates: Candidate[] = [];
    const heldImages = new Set<string>();
    for (const template of templates.values()) {
      const { key: name, sizeBytes, lastUse, imageDigest } = template;
      const isHeld = this.#isHeld(template);
      if (isHeld && imageDigest !== undefined) heldImages.add(imageDigest);
      candidates.push({ what: 'template', name, sizeBytes, lastUsedMs: lastUse.ms, isHeld });
    }
    for (const { digest: name, sizeBytes, lastUse, isKept } of images.values()) {
      if (isKept === true) continue;
      const isHeld = heldImages.has(name) || leases.isHeld(imageKey(name));
      candidates.push({ what: 'image', name, sizeBytes, lastUsedMs: lastUse.ms, isHeld });
    }
    return candidates
      .filter(({ name, isHeld }) => !isHeld && !this.#stuck.has(name))
      .toSorted((a, b) => a.lastUsedMs - b.lastUsedMs)[0];
  }

  #isHeld({ key }: CachedTemplate): boolean {
    return this.#options.leases.isHeld(templateKey(key));
  }

  async #evict(candidate: Candidate, reason: string): Promise<void> {
    const { what, name, sizeBytes, lastUsedMs, isHeld } = candidate;
    const { images, templates, onTemplateEvicted, log } = this.#options;
    if (isHeld || this.#stuck.has(name)) return;
    const last_used_at = new Date(lastUsedMs).toISOString();
    const details = { [what]: name, size_bytes: sizeBytes, last_used_at, reason };
    try {
      if (what === 'image') await this.#evictImage(name, images);
      else {
        const gone = templates.evict(name);
        onTemplateEvicted(name);
        await gone;
      }
      log.info(details, `${what} evicted`);
    } catch (error) {
      this.#stuck.add(name);
      log.error({ ...details, err: error }, `${what} could not be removed`);
    }
  }

  /** Evicts an image and the templates made from it, which are useless without it. */
  async #evictImage(digest: string, images: CachedThings<CachedImage>): Promise<void> {
    const gone = images.evict(digest);
    const orphans = this.#findStale().filter(({ template }) => template.imageDigest === digest);
    const evictions = orphans.map(({ template: { key: name, sizeBytes, lastUse }, reason }) =>
      this.#evict({ what: 'template', name, sizeBytes, lastUsedMs: lastUse.ms, isHeld: false }, reason),
    );
    await Promise.all([gone, ...evictions]);
  }
}
