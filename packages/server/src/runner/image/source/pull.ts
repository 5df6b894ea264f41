/** Pulls an image: first the config, which names the digests of the unpacked layers, then all layers in parallel. */
import { setMaxListeners } from 'node:events';
import { AppError } from '@coppice/contract';
import { parseImageConfig, type ParsedConfig } from './image-config.ts';
import type { ImageLimits } from '../layers/image-limits.ts';
import type { ImageConfig } from '../store/image-store.types.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import type { Blob } from '../registry/blob-reader.ts';
import type { PullableImage } from './resolver.ts';

export interface PullOptions {
  limits: ImageLimits;
  signal: AbortSignal;
  /** Called with the number of bytes of each received chunk of a layer, still compressed. */
  onBytes: (bytes: number) => void;
}

/** Unpacks a stored layer and returns the digest of its archive. */
export type UnpackLayer = (
  layer: number,
  source: AsyncIterable<Buffer>,
  signal: AbortSignal,
) => Promise<string>;

/** Downloads all layers and unpacks each. Returns the config. */
export async function pullImage(
  image: PullableImage,
  options: PullOptions & { unpack: UnpackLayer },
): Promise<ImageConfig> {
  return withinTime(image, options, async (signal) => {
    const { config, diffIds } = await readConfig(image, signal);
    await everyLayer(image, signal, async (layer, index, signal) => {
      const source = countBytes(image.source.readBlob(layer, signal), options.onBytes);
      const diffId = await options.unpack(index, source, signal);
      if (diffId !== diffIds[index]) throw new LayerError('its unpacked content does not match its config');
    });
    return config;
  });
}

/**
 * Downloads all blobs and keeps none. A registry that delivers the manifest of a stored image proves only that it knows
 * the digest; one that delivers all of its blobs has the image.
 */
export async function proveImage(image: PullableImage, options: PullOptions): Promise<void> {
  await withinTime(image, options, async (signal) => {
    await readConfig(image, signal);
    await everyLayer(image, signal, async (layer, _, signal) => {
      for await (const chunk of image.source.readBlob(layer, signal)) options.onBytes(chunk.length);
    });
  });
}

async function withinTime<T>(
  image: PullableImage,
  options: PullOptions,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { pullTimeoutMs } = options.limits;
  const deadline = AbortSignal.timeout(pullTimeoutMs);
  try {
    return await work(AbortSignal.any([options.signal, deadline]));
  } catch (error) {
    if (options.signal.aborted || !deadline.aborted) throw error;
    const seconds = Math.round(pullTimeoutMs / 1000);
    throw new AppError(
      'registry_unavailable',
      `image ${image.source.name}: the registry did not deliver it within ${seconds} s`,
      { cause: error },
    );
  }
}

/** Runs `work` for all layers at once; the source limits downloads. The first failure ends the others; none runs on. */
async function everyLayer(
  image: PullableImage,
  signal: AbortSignal,
  work: (layer: Blob, index: number, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { layers } = image.manifest;
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  // Each layer adds a listener, so many listeners are no leak.
  setMaxListeners(0, either);
  const results = await Promise.allSettled(
    layers.map(async (layer, index) => {
      try {
        await work(layer, index, either);
      } catch (error) {
        failed.abort(describeLayerFailure(image.source.name, error, index, layers.length));
      }
    }),
  );
  signal.throwIfAborted();
  failed.signal.throwIfAborted();
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

function describeLayerFailure(name: string, error: unknown, index: number, count: number): unknown {
  if (!(error instanceof LayerError)) return error;
  return mismatch(name, `layer ${index + 1} of ${count}: ${error.message}`, error);
}

async function readConfig(image: PullableImage, signal: AbortSignal): Promise<ParsedConfig> {
  const { name } = image.source;
  const chunks: Buffer[] = [];
  // The manifest names the size of the config, and was checked against the limits.
  for await (const chunk of image.source.readBlob(image.manifest.config, signal)) chunks.push(chunk);
  const parsed = parseImageConfig(name, Buffer.concat(chunks));
  if (parsed.diffIds.length === image.manifest.layers.length) return parsed;
  throw mismatch(name, 'its config and its manifest disagree on the number of layers');
}

async function* countBytes(
  source: AsyncIterable<Buffer>,
  onBytes: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    onBytes(chunk.length);
    yield chunk;
  }
}

function mismatch(name: string, reason: string, cause?: unknown): AppError {
  return new AppError('invalid_image', `image ${name}: ${reason}`, { cause });
}
