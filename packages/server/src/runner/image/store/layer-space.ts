/**
 * Shares the disk among the layers of builds that are on it until their images are made. Together they take at most half of what
 * is free. Beyond that, those builds fail that have taken at least their share, so that one organization's large layers do not end
 * the builds and pulls of others.
 */
import { AppError } from '@coppice/contract';
import { findFreeBytes } from '../../../lib/files/free-space.ts';

/** How much a layer grows between two looks at the disk. */
const LOOK_BYTES = 8 * 1024 ** 2;

export interface LayerRoom extends Disposable {
  /** Counts bytes that are about to be written. Throws `capacity` if there is no room for them. */
  take: (bytes: number) => Promise<void>;
}

export class LayerSpace {
  readonly #findFreeBytes: (directory: string) => Promise<number>;
  /** Bytes of each layer. */
  readonly #layers = new Map<symbol, number>();

  constructor(findFree = findFreeBytes) {
    this.#findFreeBytes = findFree;
  }

  /** Opens the room of one layer, which is free again when it is disposed. */
  open(directory: string, minFreeBytes: number): LayerRoom {
    const layer = Symbol('layer');
    let lookedAt = 0;
    this.#layers.set(layer, 0);
    return {
      take: async (more) => {
        const bytes = (this.#layers.get(layer) ?? 0) + more;
        this.#layers.set(layer, bytes);
        if (bytes - lookedAt < LOOK_BYTES) return;
        lookedAt = bytes;
        const leftBytes = (await this.#findFreeBytes(directory)) - minFreeBytes;
        this.#checkShare(bytes, leftBytes);
      },
      [Symbol.dispose]: () => void this.#layers.delete(layer),
    };
  }

  /** The bytes of the layers are no longer free: half of both together is what is still free. */
  #checkShare(bytes: number, leftBytes: number): void {
    const allBytes = [...this.#layers.values()].reduce((sum, each) => sum + each, 0);
    if (allBytes <= leftBytes || bytes * this.#layers.size < allBytes) return;
    throw new AppError(
      'capacity',
      `this machine's disk has no room for what the steps have changed: ${bytes} bytes until now; remove images or sandboxes, or change less`,
    );
  }
}
