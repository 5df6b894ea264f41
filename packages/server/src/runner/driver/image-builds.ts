/** Prepares what creates of an image need: the image, and templates of the default shape and of the requested ones. */
import { randomBytes } from 'node:crypto';
import { DEFAULT_SHAPE } from '@coppice/contract';
import { Slots } from '../../lib/waiting/slots.ts';
import type { PrepareImage, VmShape } from '../../lib/protocol/runner-protocol.ts';
import type { CacheLeases } from '../cache/cache-leases.ts';
import type { Capacity } from '../capacity/capacity.ts';
import type { PrepareOptions, StoredImage } from '../image/store/image-store.types.ts';
import type { TemplatePlan } from './template-plan.ts';
import type { TemplateBlueprint } from './vm-assembly.ts';

/**
 * Limit on reservations for template builds. They count against no sandbox limit, and only one template is built at a
 * time: more would block creates for nothing.
 */
const BOOKED_AT_ONCE = 2;
const MAX_WAITING = 256;
const MAX_WAITING_OF_ORGANIZATION = 16;

export interface ImageBuildsParts {
  plan: TemplatePlan;
  capacity: Capacity;
  leases: CacheLeases;
  /** Ends a warm VM. Returns false when there is none. */
  giveWay: () => Promise<boolean>;
}

export interface ImageBuildOptions extends Pick<PrepareOptions, 'onStep' | 'onProgress'> {
  /** Aborted when the caller has left: no more templates are built. The image is still completed. */
  signal: AbortSignal;
  onPrepared?: (image: StoredImage) => void;
  /** Called when the build of a template starts or is waited for. */
  onTemplate?: (shape: VmShape) => void;
}

export class ImageBuilds {
  readonly #parts: ImageBuildsParts;
  readonly #slots = new Slots('builds of images', {
    maxRunning: BOOKED_AT_ONCE,
    maxWaiting: MAX_WAITING,
    maxWaitingOfOwner: MAX_WAITING_OF_ORGANIZATION,
  });

  constructor(parts: ImageBuildsParts) {
    this.#parts = parts;
  }

  /** Prepares the image and its templates. Throws `invalid_request` first if this machine can never provide a shape. */
  async build(request: PrepareImage, options: ImageBuildOptions): Promise<StoredImage> {
    const { plan, capacity, leases } = this.#parts;
    for (const [index, shape] of request.shapes.entries())
      capacity.assertPossible(shape, `shapes[${index}].`);
    const shapes = [...(capacity.isPossible(DEFAULT_SHAPE) ? [DEFAULT_SHAPE] : []), ...request.shapes];
    using lease = leases.open();
    const { signal, onPrepared, onTemplate, ...listeners } = options;
    const image = await plan.prepareImage(request, { ...listeners, lease });
    onPrepared?.(image);
    if (request.templates === false) return image;
    for (const shape of shapes) {
      const blueprint = plan.blueprintOf(image, shape, lease);
      if (plan.isReady(blueprint)) continue;
      onTemplate?.(shape);
      const { organization } = request;
      await this.#slots.run(signal, () => this.#ensure(blueprint, { organization, signal }), organization);
    }
    return image;
  }

  /** Ensures one template. Its VM is reserved while it is waited for, as in a create. */
  async #ensure(
    blueprint: TemplateBlueprint,
    who: { organization: string; signal: AbortSignal },
  ): Promise<void> {
    const { plan, capacity, giveWay } = this.#parts;
    const unit = `build-${randomBytes(8).toString('hex')}`;
    who.signal.throwIfAborted();
    await capacity.reserve(unit, blueprint.shape, { giveWay });
    try {
      await plan.ensureTemplate(blueprint, who);
    } finally {
      capacity.release(unit);
    }
  }
}
