/** Makes a squashfs file from a manifest, in a staging directory: pull → check → flatten. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { isDiskFull } from '../../host/full-disk.ts';
import { checkFreeSpace, withinSpace } from '../layers/disk-space.ts';
import { maxUnpackedBytes, type ImageLimits } from '../layers/image-limits.ts';
import type { ImageConfig, PrepareProgress, PrepareStep } from './image-store.types.ts';
import { LayerError } from '../tar/layer-error.ts';
import { compressedBytes } from '../source/manifest.ts';
import { ProgressMeter } from '../layers/progress-meter.ts';
import { pullImage, type PulledImage } from '../source/pull.ts';
import type { PullableImage } from '../source/resolver.ts';
import { ProcessError } from '../../host/run-process.ts';
import { Unpacker, type UnpackProgram } from '../unpacking/unpacker.ts';
import { SQUASHFS_NAME } from './stored-images.ts';
import { stretched } from '../../../lib/waiting/deadline.ts';

export interface PreparationOptions {
  /** The tar2sqfs program. */
  tar2sqfs: string;
  program: UnpackProgram;
  /** User of the unpacking process; null: the service's own. */
  uid: number | null;
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
  const { limits, stagingPath, signal } = options;
  const totalBytes = compressedBytes(image.manifest);
  await checkFreeSpace(stagingPath, EXPANSION * totalBytes, limits.minFreeBytes);
  // The layers and the squashfs made from them exist at the same time for a while.
  const maxBytes = 2 * maxUnpackedBytes(compressedBytes(image.manifest), limits);
  const space = { maxBytes, minFreeBytes: limits.minFreeBytes };
  return withinSpace(stagingPath, space, signal, async (signal) => {
    const { program, uid, tar2sqfs } = options;
    const directory = join(stagingPath, 'unpacked');
    await using unpacker = await Unpacker.start({ program, uid, tar2sqfs, directory });
    const pulled = await pull(image, unpacker, { ...options, signal });
    return await flatten(image, { pulled, unpacker }, { ...options, signal });
  });
}

async function pull(
  image: PullableImage,
  unpacker: Unpacker,
  options: PreparationOptions,
): Promise<PulledImage> {
  const { limits, signal, onStep, onProgress } = options;
  onStep('pull');
  const meter = new ProgressMeter('pull', compressedBytes(image.manifest), onProgress);
  try {
    return await pullImage(image, {
      limits,
      signal,
      unpackLayer: (index, source, how) => unpacker.unpackLayer(index, source, how),
      onBytes: (bytes) => meter.add(bytes),
    });
  } catch (error) {
    throw isDiskFull(error) ? diskFull(image.source.name, error) : error;
  }
}

async function flatten(
  image: PullableImage,
  { pulled, unpacker }: { pulled: PulledImage; unpacker: Unpacker },
  options: PreparationOptions,
): Promise<Prepared> {
  options.onStep('flatten');
  const { limits } = options;
  const path = join(options.stagingPath, 'image');
  await mkdir(path);
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(stretched(limits.flattenTimeoutMs))]);
  try {
    const { maxEntries, maxContentBytes, maxMetadataBytes, flattenTimeoutMs: timeoutMs } = limits;
    let meter = new ProgressMeter('flatten', 0, options.onProgress);
    const { acls } = await unpacker.makeImage(
      { layers: pulled.layers, maxEntries, maxContentBytes, maxMetadataBytes, timeoutMs },
      {
        signal,
        onContentBytes: (bytes) => (meter = new ProgressMeter('flatten', bytes, options.onProgress)),
        onBytes: (bytes) => meter.add(bytes),
      },
    );
    const sizeBytes = await unpacker.takeImage(join(path, SQUASHFS_NAME));
    return { path, sizeBytes, config: pulled.config, acls };
  } catch (error) {
    throw translateFlattenFailure(image.source.name, error, limits);
  }
}

function translateFlattenFailure(name: string, error: unknown, limits: ImageLimits): unknown {
  if (error instanceof LayerError)
    return new AppError('invalid_image', `image ${name}: ${error.message}`, { cause: error });
  const isTimeout = error instanceof DOMException && error.name === 'TimeoutError';
  if (isTimeout || (error instanceof ProcessError && error.isTimeout)) {
    const seconds = Math.round(limits.flattenTimeoutMs / 1000);
    return new AppError('invalid_image', `image ${name}: its layers were not merged within ${seconds} s`, {
      cause: error,
    });
  }
  return isDiskFull(error) ? diskFull(name, error) : error;
}

function diskFull(name: string, cause: unknown): AppError {
  return new AppError(
    'capacity',
    `image ${name}: this machine's disk is full; remove images or sandboxes and try again`,
    { cause },
  );
}
