/** Limits what the layers of one image may cost together: memory, time, and bytes of the image made from them. */
import { LayerError } from '../../../lib/tar/layer-error.ts';
import type { TarEntry } from '../../../lib/tar/tar-reader.ts';

export interface TreeLimits {
  /** Entries of all layers, and the directories made for them. */
  maxEntries: number;
  /** Sum of the sizes of all files of all layers. */
  maxContentBytes: number;
  /** Bytes of paths, link targets and extended attributes, which are held in memory. */
  maxMetadataBytes: number;
}

/**
 * The most names visited to find parents and to empty directories, for each entry that an image may have. Real images
 * need about ten. Without this limit, repeated opaque markers over a full directory, or chains of links, take hours.
 */
const MAX_STEPS_PER_ENTRY = 64;

/** The budget of one image. Every method throws {@link LayerError} when its limit is exceeded. */
export class TreeBudget {
  readonly #limits: TreeLimits;
  #names = 0;
  #steps = 0;
  #contentBytes = 0;
  #metadataBytes = 0;

  constructor(limits: TreeLimits) {
    this.#limits = limits;
  }

  /** The sum of the sizes of all files so far. */
  get contentBytes(): number {
    return this.#contentBytes;
  }

  countEntry(entry: TarEntry): void {
    this.countNames(1);
    this.#contentBytes += entry.sizeBytes;
    if (this.#contentBytes > this.#limits.maxContentBytes) {
      throw new LayerError(`the files of the image have more than ${this.#limits.maxContentBytes} bytes`);
    }
    let bytes = entry.linkName.length;
    for (const [name, value] of entry.xattrs) bytes += name.length + value.length;
    this.countMetadata(bytes);
  }

  countNames(count: number): void {
    this.#names += count;
    if (this.#names > this.#limits.maxEntries) {
      throw new LayerError(`the image has more than ${this.#limits.maxEntries} entries`);
    }
  }

  countMetadata(bytes: number): void {
    this.#metadataBytes += bytes;
    if (this.#metadataBytes > this.#limits.maxMetadataBytes) {
      throw new LayerError(
        `paths and extended attributes of the image have more than ${this.#limits.maxMetadataBytes} bytes`,
      );
    }
  }

  countStep(): void {
    this.#steps += 1;
    if (this.#steps > this.#limits.maxEntries * MAX_STEPS_PER_ENTRY) {
      throw new LayerError('the links and whiteouts of the image take too many steps');
    }
  }
}
