/**
 * Plans what a sandbox is made from: its image and the template of its shape. Creates, `POST /v1/images/build` and
 * imports all use it, so that a create finds what was prepared.
 */
import { isDeepStrictEqual } from 'node:util';
import { isBuiltImage, parseImageReference, type ReadyShape } from '@coppice/contract';
import type { ImageAccess, VmShape } from '../../lib/protocol/runner-protocol.ts';
import { traceStages } from '../../lib/tracing/tracing.ts';
import type { Accelerators } from '../accelerator/accelerators.ts';
import { templateKey, type CacheLease } from '../cache/cache-leases.ts';
import { largestDiskMiB, templateDiskMiB } from '../disk/disk-sizes.ts';
import type { SharedImages } from '../image-objects/shared-images.ts';
import type { ImageStore } from '../image/store/image-store.ts';
import type { PrepareOptions, PrepareStep, StoredImage } from '../image/store/image-store.types.ts';
import type { TemplateStore } from '../snapshot/template-store.ts';
import { EMULATED_CPU } from '../vm/cpu.ts';
import type { TemplateShape } from '../vm/shape.ts';
import type { TemplateBlueprint } from './vm-assembly.ts';
import { TEMPLATE_COUNTERS } from './vm-driver.ts';

export interface TemplatePlanParts {
  accelerators: Pick<Accelerators, 'current'>;
  images: ImageStore;
  /** Fetches built images that this runner lacks. */
  sharedImages: Pick<SharedImages, 'ensure'>;
  templates: TemplateStore;
}

export interface WantedImage {
  /** Pinned reference as the caller wrote it. */
  image: string;
  organization: string;
  access?: ImageAccess | undefined;
}

export class TemplatePlan {
  readonly #parts: TemplatePlanParts;

  constructor(parts: TemplatePlanParts) {
    this.#parts = parts;
  }

  /** Prepares an image. The lease holds it from before the lookup. */
  async prepareImage(
    wanted: WantedImage,
    options: PrepareOptions & { lease: CacheLease },
  ): Promise<StoredImage> {
    const { image, organization, access = {} } = wanted;
    const { images, sharedImages } = this.#parts;
    const reference = parseImageReference(image);
    const steps = traceStages('image.prepare');
    const onStep = (step: PrepareStep): void => {
      steps?.enter(step);
      options.onStep?.(step);
    };
    const how = { ...options, onStep, access, organization };
    try {
      if (isBuiltImage(reference)) await sharedImages.ensure(reference, how);
      return await images.prepare(reference, how);
    } finally {
      steps?.end();
    }
  }

  /** Returns the blueprint of a sandbox. The lease holds the template from before the lookup. */
  blueprintOf(image: StoredImage, wanted: VmShape, lease: CacheLease): TemplateBlueprint {
    const { templates } = this.#parts;
    const { vcpus, mem_mib: memMiB, disk_mib: diskMiB } = wanted;
    const shape = { ...this.#processor, vcpus, memMiB, diskMiB };
    const savedDiskMiB = templateDiskMiB(diskMiB);
    const key = templates.keyOf(image, { ...shape, diskMiB: savedDiskMiB });
    lease.add(templateKey(key));
    const { reference, digest, config } = image;
    const { scratchPath: topPath, basePath, ...saved } = templates.filesOf(key);
    return {
      machine: templates.machine,
      image: { reference, digest, config: { ...config, env: { ...config.env } } },
      shape,
      savedDiskMiB,
      templateKey: key,
      stored: image,
      files: { ...saved, imagePath: image.path, scratch: { basePath, frozen: [], topPath } },
      counters: TEMPLATE_COUNTERS,
    };
  }

  isReady({ templateKey: key }: TemplateBlueprint): boolean {
    return this.#parts.templates.catalogue.has(key);
  }

  /** Resolves when the template is built. Aborting `signal` ends the wait, and the build if no other caller waits. */
  async ensureTemplate(
    blueprint: TemplateBlueprint,
    who: { organization: string; signal: AbortSignal },
  ): Promise<void> {
    const { stored: image, shape, savedDiskMiB } = blueprint;
    await this.#parts.templates.ensure({ image, shape: { ...shape, diskMiB: savedDiskMiB }, ...who });
  }

  /** Accelerator and CPU of new VMs. */
  get #processor(): Pick<TemplateShape, 'accelerator' | 'cpu'> {
    const { accelerator, cpus } = this.#parts.accelerators.current;
    return { accelerator, cpu: cpus?.chosen ?? EMULATED_CPU };
  }

  /** Returns the shapes for which the image has a ready template. */
  listReady(image: Pick<StoredImage, 'digest' | 'preparedAt'>): ReadyShape[] {
    const processor = this.#processor;
    return this.#parts.templates
      .listReady(image)
      .filter(({ accelerator, cpu }) => isDeepStrictEqual({ accelerator, cpu }, processor))
      .map(({ vcpus, memMiB, diskMiB }) => ({
        vcpus,
        mem_mib: memMiB,
        disk_mib: diskMiB,
        max_disk_mib: largestDiskMiB(diskMiB),
      }))
      .toSorted((a, b) => a.vcpus - b.vcpus || a.mem_mib - b.mem_mib || a.disk_mib - b.disk_mib);
  }
}
