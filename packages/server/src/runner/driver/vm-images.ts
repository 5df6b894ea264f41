/** Makes images of VMs: the image that a VM was started from, and what its guest has changed since. */
import { AppError } from '@coppice/contract';
import type { CommittedImage, CommitVm, StoredConfig, VmInfo } from '../../lib/protocol/runner-protocol.ts';
import { DEFAULT_IMAGE_LIMITS } from '../image/layers/image-limits.ts';
import type { ImageStore } from '../image/store/image-store.ts';
import type { Fleet } from './fleet.ts';
import { readGuestLayer } from './guest-layer.ts';

const MIB = 1024 ** 2;
/** An archive of a whole scratch disk has a header for each file. */
const HEADERS_MIB = 256;

export interface VmImagesParts {
  fleet: Pick<Fleet, 'vms'>;
  images: Pick<ImageStore, 'build' | 'stored'>;
}

export class VmImages {
  readonly #parts: VmImagesParts;

  constructor(parts: VmImagesParts) {
    this.#parts = parts;
  }

  /** Returns the image that the VM was started from. */
  read(id: string): StoredConfig {
    return this.find(digestOf(this.#parts.fleet.vms.get(id).info));
  }

  /** Returns a stored image. Throws `image_not_found` if there is none with the digest, or its owner has deleted it. */
  find(digest: string): StoredConfig {
    const entry = this.#parts.images.stored.find(digest);
    if (entry === undefined || entry.isReleased)
      throw new AppError('image_not_found', `the image ${digest} is not stored any more`);
    const { config, sizeBytes: size_bytes } = entry;
    return { digest, size_bytes, config: { ...config, env: { ...config.env } } };
  }

  /** Resolves with the new image. The VM continues; its programs are frozen while its files are read. */
  async commit(id: string, request: CommitVm, signal: AbortSignal): Promise<CommittedImage> {
    const driver = this.#parts.fleet.vms.get(id);
    if (!driver.isUp) throw new AppError('invalid_state', `the sandbox is ${driver.phase}`);
    const image = await this.#parts.images.build({
      base: digestOf(driver.info),
      owner: { organization: request.organization, build: request.build },
      config: request.config,
      isKept: request.kept,
      openLayer: async function* (signal) {
        yield* readGuestLayer(await driver.session(), signal);
      },
      maxLayerBytes: Math.min(
        (driver.info.disk_mib + HEADERS_MIB) * MIB,
        DEFAULT_IMAGE_LIMITS.maxContentBytes,
      ),
      maxBytes: request.max_bytes,
      signal,
    });
    return { digest: image.digest, size_bytes: image.sizeBytes };
  }
}

function digestOf({ image }: VmInfo): string {
  return image.slice(image.lastIndexOf('@') + 1);
}
