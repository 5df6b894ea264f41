/** Makes a squashfs file from a manifest, in a staging directory: pull → check → flatten. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { isDiskFull } from '../../host/full-disk.ts';
import { checkFreeSpace, diskFull, isOutOfSpace, withinSpace } from '../layers/disk-space.ts';
import { maxUnpackedBytes, type ImageLimits } from '../layers/image-limits.ts';
import type { ImageConfig, PrepareProgress, PrepareStep } from './image-store.types.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { compressedBytes } from '../source/manifest.ts';
import { ProgressMeter } from '../layers/progress-meter.ts';
import { pullImage } from '../source/pull.ts';
import type { PullableImage } from '../source/resolver.ts';
import type { TreeLimits } from '../layers/tree-budget.ts';
import { SQUASHFS_NAME } from './stored-images.ts';
import type { UnpackPlaces } from '../unpacking/unpack-places.ts';
import { Unpacker } from '../unpacking/unpacker.ts';
import { stretched } from '../../../lib/waiting/deadline.ts';

export interface PreparationOptions {
  places: UnpackPlaces;
  limits: ImageLimits;
  /** An empty directory; the caller removes it. */
  stagingPath: string;
  signal: AbortSignal;
  onStep: (step: PrepareStep) => void;
  onProgress: (progress: PrepareProgress) => void;
}

export interface Prepared {
  /** A directory that holds only the squashfs file. */
  path: string;
  sizeBytes: number;
  config: ImageConfig;
  /** Entries that had an access control list, which squashfs cannot hold. */
  acls: number;
}

/** Free space required before a download, as a multiple of its size: layers compressed 3:1, and their squashfs. */
const EXPANSION = 4;

export async function prepareImage(image: PullableImage, options: PreparationOptions): Promise<Prepared> {
  const { limits, stagingPath, places } = options;
  const totalBytes = compressedBytes(image.manifest);
  await checkFreeSpace(stagingPath, EXPANSION * totalBytes, limits.minFreeBytes);
  // The layers and the squashfs made from them exist at the same time for a while.
  const maxBytes = 2 * maxUnpackedBytes(totalBytes, limits);
  const space = { maxBytes, minFreeBytes: limits.minFreeBytes };
  return withinSpace(stagingPath, space, options.signal, async (signal) => {
    await using place = await places.take(maxBytes);
    await using unpacker = await Unpacker.start(place, {
      directory: join(stagingPath, 'layers'),
      maxFileBytes: maxBytes,
      maxBytes: image.manifest.layers.map(({ size }) => maxUnpackedBytes(size, limits)),
      limits: pickTreeLimits(limits),
    });
    const config = await pull(image, unpacker, { ...options, signal });
    return { ...(await pack(image, unpacker, { ...options, signal })), config };
  });
}

export function pickTreeLimits({ maxEntries, maxContentBytes, maxMetadataBytes }: ImageLimits): TreeLimits {
  return { maxEntries, maxContentBytes, maxMetadataBytes };
}

async function pull(
  image: PullableImage,
  unpacker: Unpacker,
  options: PreparationOptions,
): Promise<ImageConfig> {
  const { limits, signal, onStep, onProgress } = options;
  onStep('pull');
  const meter = new ProgressMeter('pull', compressedBytes(image.manifest), onProgress);
  try {
    return await pullImage(image, {
      limits,
      signal,
      onBytes: (bytes) => meter.add(bytes),
      unpack: (layer, source, signal) => unpacker.unpackLayer(layer, source, signal),
    });
  } catch (error) {
    throw isDiskFull(error) ? diskFull(error, image.source.name) : error;
  }
}

async function pack(
  image: PullableImage,
  unpacker: Unpacker,
  options: PreparationOptions,
): Promise<Omit<Prepared, 'config'>> {
  options.onStep('flatten');
  const { limits } = options;
  const path = join(options.stagingPath, 'image');
  await mkdir(path);
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(stretched(limits.flattenTimeoutMs))]);
  let meter: ProgressMeter | undefined;
  try {
    const made = await unpacker.makeImage(join(path, SQUASHFS_NAME), {
      signal,
      onContentBytes: (bytes) => (meter = new ProgressMeter('flatten', bytes, options.onProgress)),
      onBytes: (bytes) => meter?.add(bytes),
    });
    return { path, ...made };
  } catch (error) {
    throw translateFlattenFailure(image.source.name, error, limits);
  }
}

function translateFlattenFailure(name: string, error: unknown, limits: ImageLimits): unknown {
  if (error instanceof LayerError)
    return new AppError('invalid_image', `image ${name}: ${error.message}`, { cause: error });
  const isTimeout = error instanceof DOMException && error.name === 'TimeoutError';
  if (isTimeout) {
    const seconds = Math.round(limits.flattenTimeoutMs / 1000);
    return new AppError('invalid_image', `image ${name}: its layers were not merged within ${seconds} s`, {
      cause: error,
    });
  }
  return isOutOfSpace(error) ? diskFull(error, name) : error;
}
