/**
 * Images and templates that a runner has, as far as control knows from its reports and from creates there. Only a guess, by which
 * runners are preferred: the runner itself prepares what it lacks.
 */
import { formatImageReference, parseImageReference } from '@coppice/contract';
import type { PreparedImage, VmShape } from '../../lib/protocol/runner-protocol.ts';

/** `template`: also the template of this shape, so that a create there takes no preparation at all. */
export type Locality = 'none' | 'image' | 'template';

/** Names that are remembered; a runner stores fewer images. */
const MAX_NAMES = 4096;

/** An image reference without its digest, and the digest if it has one. */
interface ImageName {
  name: string;
  digest: string | undefined;
}

type Size = Pick<VmShape, 'vcpus' | 'mem_mib'>;

export class LocalImages {
  /** Sizes of the templates of each image, by its digest. */
  #templates = new Map<string, Set<string>>();
  /** Digests of names, as they were resolved last. Oldest first. */
  readonly #digests = new Map<string, string>();

  /** Replaces what is known by what the runner has. */
  report(images: readonly PreparedImage[]): void {
    this.#templates = new Map();
    for (const { image, digest, shapes } of images) {
      this.#templates.set(digest, new Set(shapes.map(toKey)));
      this.#remember(nameOf(image).name, digest);
    }
  }

  /** Digests of all images. */
  get digests(): string[] {
    return [...this.#templates.keys()];
  }

  /** Notes that a VM of this size was created from an image, whose reference has its digest. */
  note(image: string, size: Size): void {
    const { name, digest } = nameOf(image);
    if (digest === undefined) return;
    const sizes = this.#templates.get(digest) ?? new Set();
    this.#templates.set(digest, sizes.add(toKey(size)));
    this.#remember(name, digest);
  }

  /** A tag counts for what it was when it was resolved last. */
  rate({ name, digest = this.#digests.get(name) }: ImageName, size: Size): Locality {
    const sizes = this.#templates.get(digest ?? '');
    if (sizes === undefined) return 'none';
    return sizes.has(toKey(size)) ? 'template' : 'image';
  }

  #remember(name: string, digest: string): void {
    this.#digests.delete(name);
    this.#digests.set(name, digest);
    const [oldest] = this.#digests.keys();
    if (this.#digests.size > MAX_NAMES && oldest !== undefined) this.#digests.delete(oldest);
  }
}

/** Of many runners one image is asked for, so it is read once. */
export function nameOf(image: string): ImageName {
  try {
    const { digest, ...rest } = parseImageReference(image);
    return { name: formatImageReference(rest), digest };
  } catch {
    // Of another version, or of a runner that reports nonsense: nothing is known of it, which only costs a preference.
    return { name: image, digest: undefined };
  }
}

function toKey({ vcpus, mem_mib }: Size): string {
  return `${vcpus} ${mem_mib}`;
}
