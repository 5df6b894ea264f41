/** Makes a squashfs file from a manifest, in a staging directory: pull → check → flatten. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { isDiskFull } from '../../host/full-disk.ts';
import { checkFreeSpace, withinSpace } from '../layers/disk-space.ts';
import { readLayers, writeFlatTar } from '../layers/flatten.ts';
import { maxUnpackedBytes, type ImageLimits } from '../layers/image-limits.ts';
import type { ImageConfig, PrepareProgress, PrepareStep } from './image-store.types.ts';
import { LayerError } from '../tar/layer-error.ts';
import { compressedBytes } from '../source/manifest.ts';
import { ProgressMeter } from '../layers/progress-meter.ts';
import { pullImage, type PulledImage } from '../source/pull.ts';
import type { PullableImage } from '../source/resolver.ts';
import { ProcessError } from '../../host/run-process.ts';
import { buildSquashfs } from '../layers/squashfs.ts';
import { SQUASHFS_NAME } from './stored-images.ts';
import { stretched } from '../../../lib/waiting/deadline.ts';

export interface PreparationOptions {
  /** The tar2sqfs program. */
  tar2sqfs: string;
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
    const pulled = await pull(image, { ...options, signal });
    return flatten(image, pulled, { ...options, signal });
  });
}

async function pull(image: PullableImage, options: PreparationOptions): Promise<PulledImage> {
  const { limits, signal, onStep, onProgress } = options;
  onStep('pull');
  const meter = new ProgressMeter('pull', compressedBytes(image.manifest), onProgress);
  try {
    const directory = join(options.stagingPath, 'layers');
    return await pullImage(image, { directory, limits, signal, onBytes: (bytes) => meter.add(bytes) });
  } catch (error) {
    throw isDiskFull(error) ? diskFull(image.source.name, error) : error;
  }
}

async function flatten(
  image: PullableImage,
  pulled: PulledImage,
  options: PreparationOptions,
): Promise<Prepared> {
  options.onStep('flatten');
  const { limits } = options;
  const path = join(options.stagingPath, 'image');
  await mkdir(path);
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(stretched(limits.flattenTimeoutMs))]);
  try {
    const tree = await readLayers(pulled.layerPaths, limits, signal);
    const meter = new ProgressMeter('flatten', tree.contentBytes, options.onProgress);
    const sizeBytes = await buildSquashfs({
      tool: options.tar2sqfs,
      outputPath: join(path, SQUASHFS_NAME),
      timeoutMs: limits.flattenTimeoutMs,
      signal,
      write: (writer) =>
        writeFlatTar(tree, pulled.layerPaths, writer, {
          signal,
          onBytes: (bytes) => meter.add(bytes),
        }),
    });
    await rm(pulled.directory, { recursive: true });
    return { path, sizeBytes, config: pulled.config, acls: tree.acls };
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
  const saysSo = error instanceof ProcessError && error.stderr.includes('No space left on device');
  return saysSo || isDiskFull(error) ? diskFull(name, error) : error;
}

function diskFull(name: string, cause: unknown): AppError {
  return new AppError(
    'capacity',
    `image ${name}: this machine's disk is full; remove images or sandboxes and try again`,
    { cause },
  );
}
