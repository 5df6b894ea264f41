/** From a manifest to a squashfs file, in a staging directory: pull → check → flatten. */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { checkFreeSpace, withinSpace } from './disk-space.ts';
import { readLayers, writeFlatTar } from './flatten.ts';
import { parseImageConfig } from './image-config.ts';
import { maxUnpackedBytes, type ImageLimits } from './image-limits.ts';
import type { ImageConfig, PrepareStep } from './image-store.types.ts';
import { LayerError } from './layer-error.ts';
import { compressedBytes } from './manifest.ts';
import type { PullableImage } from './resolver.ts';
import { ProcessError } from './run-process.ts';
import type { Skopeo } from './skopeo.ts';
import { buildSquashfs } from './squashfs.ts';
import { SQUASHFS_NAME } from './stored-images.ts';

export interface PreparationOptions {
  skopeo: Skopeo;
  /** The tar2sqfs program. */
  tar2sqfs: string;
  limits: ImageLimits;
  /** An empty directory; whoever made it removes it. */
  stagingPath: string;
  signal: AbortSignal;
  onStep: (step: PrepareStep) => void;
}

export interface Prepared {
  /** A directory with nothing but the squashfs file. */
  path: string;
  sizeBytes: number;
  config: ImageConfig;
  /** Entries that had an access control list, which squashfs cannot hold. */
  acls: number;
}

/** A layer compressed by three and its squashfs beside it: what is set aside before a download begins. */
const EXPANSION = 4;

export async function prepareImage(image: PullableImage, options: PreparationOptions): Promise<Prepared> {
  const { limits, stagingPath, signal } = options;
  await checkFreeSpace(stagingPath, EXPANSION * compressedBytes(image.manifest), limits.minFreeBytes);
  // Layers and the squashfs made of them lie side by side for a while.
  const maxBytes = 2 * maxUnpackedBytes(compressedBytes(image.manifest), limits);
  const space = { maxBytes, minFreeBytes: limits.minFreeBytes };
  return withinSpace(stagingPath, space, signal, async (signal) => {
    const pulled = await pull(image, { ...options, signal });
    return flatten(image, pulled, { ...options, signal });
  });
}

interface PulledImage {
  directory: string;
  layerPaths: string[];
  config: ImageConfig;
}

async function pull(image: PullableImage, options: PreparationOptions): Promise<PulledImage> {
  options.onStep('pull');
  const directory = join(options.stagingPath, 'layers');
  const temporaryPath = join(options.stagingPath, 'tmp');
  await mkdir(temporaryPath);
  await options.skopeo.copy(image.source, {
    targetPath: directory,
    temporaryPath,
    timeoutMs: options.limits.pullTimeoutMs,
    signal: options.signal,
  });
  const { config, diffIds } = await readConfig(image, directory);
  const layerPaths = diffIds.map((digest) => blobPath(directory, digest));
  for (const [index, path] of layerPaths.entries()) await checkLayer(image, path, index);
  return { directory, layerPaths, config };
}

async function readConfig(image: PullableImage, directory: string) {
  const { name } = image.source;
  const { digest } = image.manifest.config;
  const data = await readFile(blobPath(directory, digest)).catch((error: unknown) => {
    throw mismatch(name, 'its config is not the one its manifest names', error);
  });
  if (`sha256:${createHash('sha256').update(data).digest('hex')}` !== digest) {
    throw mismatch(name, 'its config does not match its digest');
  }
  const parsed = parseImageConfig(name, data);
  if (parsed.diffIds.length === image.manifest.layers.length) return parsed;
  throw mismatch(name, 'its config and its manifest disagree on the number of layers');
}

/** skopeo names a layer by the digest of what it unpacked; the config, which is verified, says what that must be. */
async function checkLayer(image: PullableImage, path: string, index: number): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile() === true) return;
  throw mismatch(image.source.name, `layer ${index + 1} does not unpack to what its config names`);
}

function mismatch(name: string, reason: string, cause?: unknown): AppError {
  return new AppError('invalid_image', `image ${name}: ${reason}`, { cause });
}

function blobPath(directory: string, digest: string): string {
  return join(directory, digest.slice('sha256:'.length));
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
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(limits.flattenTimeoutMs)]);
  try {
    const tree = await readLayers(pulled.layerPaths, limits, signal);
    const sizeBytes = await buildSquashfs({
      tool: options.tar2sqfs,
      outputPath: join(path, SQUASHFS_NAME),
      timeoutMs: limits.flattenTimeoutMs,
      signal,
      write: (writer) => writeFlatTar(tree, pulled.layerPaths, writer, signal),
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
  if (isNoSpace(error)) {
    return new AppError(
      'capacity',
      `image ${name}: this machine's disk is full; remove images or sandboxes and try again`,
      {
        cause: error,
      },
    );
  }
  return error;
}

function isNoSpace(error: unknown): boolean {
  if (error instanceof ProcessError) return error.stderr.includes('No space left on device');
  return error instanceof Error && (error as NodeJS.ErrnoException).code === 'ENOSPC';
}
