/**
 * Keeps images and templates within a limit of bytes.
 *
 *   something was stored, or is no longer used ──► sweep ──► evicts stale templates
 *                                                       └──► over the limit: evicts the least recently used
 *
 * The evictor never evicts what a lease holds, so images and templates in use can exceed the limit. It evicts templates
 * together with their image: the saved memory of a guest is bound to the exact bytes of the image's file.
 *
 * It does not evict a built image either while VMs or captures hold links to its file: that would free nothing, and the
 * bytes would count for no organization any more. These bytes are no part of the cache meanwhile.
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
  /** Set for an image that was built from steps. */
  owner?: object | undefined;
  /** Set for a built image with a name: nothing can make it again, so it is no part of the cache. */
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

export interface CachedImages extends CachedThings<CachedImage> {
  /** Whether VMs or captures hold links to the file of the image. */
  isLinked(digest: string): Promise<boolean>;
}

export interface CacheEvictorOptions {
  /** 0 is no limit. */
  maxBytes: number;
  leases: CacheLeases;
  images: CachedImages;
  templates: CachedThings<CachedTemplate>;
  onTemplateEvicted: (key: string) => void;
  log: Logger;
}

type Candidate = { what: 'image'; thing: CachedImage } | { what: 'template'; thing: CachedTemplate };

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
    for (const { template: thing, reason } of this.#findStale())
      await this.#evict({ what: 'template', thing }, reason);
    const released = [...this.#options.images.values()].filter(({ isReleased }) => isReleased === true);
    for (const image of released) await this.#evictReleased(image);
    await this.#shrink();
  }

  async #evictReleased(image: CachedImage): Promise<void> {
    if (await this.#options.images.isLinked(image.digest)) return;
    // It may have got a name again meanwhile.
    if (image.isReleased === true)
      await this.#evict({ what: 'image', thing: image }, 'its owner has deleted it');
  }

  /** Evicts until the limit holds, or nothing is left that can be evicted. */
  async #shrink(): Promise<void> {
    if (!this.#isOverLimit(new Set())) return;
    const linked = await this.#findLinked();
    while (this.#isOverLimit(linked)) {
      const next = this.#oldest(linked);
      if (next === undefined) return;
      if (next.what === 'image' && next.thing.owner !== undefined) {
        const { thing } = next;
        if (await this.#options.images.isLinked(thing.digest)) linked.add(thing.digest);
        // It may be in use or have got a name meanwhile.
        if (linked.has(thing.digest) || thing.isKept === true || this.#isImageHeld(thing.digest)) continue;
      }
      await this.#evict(
        next,
        `images and templates take ${this.#sumBytes(linked)} bytes, ${this.#options.maxBytes} are allowed`,
      );
    }
  }

  #isOverLimit(linked: ReadonlySet<string>): boolean {
    const { maxBytes } = this.#options;
    return maxBytes > 0 && !this.#closed && this.#sumBytes(linked) > maxBytes;
  }

  /** Finds the images in the cache of which nothing but their entry would go. */
  async #findLinked(): Promise<Set<string>> {
    const { images } = this.#options;
    const linked = new Set<string>();
    for (const { digest, owner, isKept } of images.values())
      if (owner !== undefined && isKept !== true && (await images.isLinked(digest))) linked.add(digest);
    return linked;
  }

  get totalBytes(): number {
    return this.#sumBytes(new Set());
  }

  /** Sums the cache without the `linked` images. */
  #sumBytes(linked: ReadonlySet<string>): number {
    const { images, templates } = this.#options;
    let bytes = 0;
    for (const { digest, sizeBytes, isKept } of images.values())
      if (isKept !== true && !linked.has(digest)) bytes += sizeBytes;
    for (const { sizeBytes } of templates.values()) bytes += sizeBytes;
    return bytes;
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
  #oldest(linked: ReadonlySet<string>): Candidate | undefined {
    const { images, templates, leases } = this.#options;
    const heldImages = this.#findHeldByTemplates();
    let oldest: Candidate | undefined;
    const offer = (candidate: Candidate): void => {
      if (oldest === undefined || candidate.thing.lastUse.ms < oldest.thing.lastUse.ms) oldest = candidate;
    };
    for (const thing of templates.values())
      if (!this.#isHeld(thing) && !this.#stuck.has(thing.key)) offer({ what: 'template', thing });
    for (const thing of images.values()) {
      const { digest, isKept } = thing;
      const isHeld = heldImages.has(digest) || leases.isHeld(imageKey(digest));
      if (isKept === true || isHeld || linked.has(digest) || this.#stuck.has(digest)) continue;
      offer({ what: 'image', thing });
    }
    return oldest;
  }

  #findHeldByTemplates(): Set<string | undefined> {
    const held = [...this.#options.templates.values()].filter((template) => this.#isHeld(template));
    return new Set(held.map(({ imageDigest }) => imageDigest));
  }

  #isImageHeld(digest: string): boolean {
    return this.#options.leases.isHeld(imageKey(digest)) || this.#findHeldByTemplates().has(digest);
  }

  #isHeld({ key }: CachedTemplate): boolean {
    return this.#options.leases.isHeld(templateKey(key));
  }

  /** Does nothing for what is in use by now. */
  async #evict(candidate: Candidate, reason: string): Promise<void> {
    const { what, thing } = candidate;
    const { images, templates, onTemplateEvicted, log } = this.#options;
    const name = what === 'image' ? thing.digest : thing.key;
    const isHeld = what === 'image' ? this.#isImageHeld(name) : this.#isHeld(thing);
    if (isHeld || this.#stuck.has(name)) return;
    const last_used_at = new Date(thing.lastUse.ms).toISOString();
    const details = { [what]: name, size_bytes: thing.sizeBytes, last_used_at, reason };
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
  async #evictImage(digest: string, images: CachedImages): Promise<void> {
    const gone = images.evict(digest);
    const orphans = this.#findStale().filter(({ template }) => template.imageDigest === digest);
    const evictions = orphans.map(({ template: thing, reason }) =>
      this.#evict({ what: 'template', thing }, reason),
    );
    await Promise.all([gone, ...evictions]);
  }
}
