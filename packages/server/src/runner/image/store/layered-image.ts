/**
 * Makes a squashfs file of a stored image and a layer above it: what a build has changed in a sandbox. The layer comes
 * from a guest, so it is as hostile as one of a registry, and takes the same way: unpacked, merged and packed without
 * privileges, within the limits of images.
 *
 *   guest ──receive──► file                                     however slow the guest is, it holds up no other image
 *
 *   stored squashfs ──sqfs2tar──► layer 0 ─┐
 *                                          ├─► merge ─► tar2sqfs ─► image of the organization
 *   file ──────────────────────► layer 1 ─┘
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { AppError, BUILT_REGISTRY, type ImageReference } from '@coppice/contract';
import { stretched, untilAborted } from '../../../lib/waiting/deadline.ts';
import { checkFreeSpace, diskFull, isOutOfSpace, withinSpace } from '../layers/disk-space.ts';
import { maxUnpackedBytes, type ImageLimits } from '../layers/image-limits.ts';
import { formatPinned } from '../source/resolver.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { ImageTooLargeError, Unpacker } from '../unpacking/unpacker.ts';
import type { LayerRoom, LayerSpace } from './layer-space.ts';
import type { UnpackPlaces } from '../unpacking/unpack-places.ts';
import type { ImageConfig } from './image-store.types.ts';
import { pickTreeLimits } from './preparation.ts';
import { SQUASHFS_NAME, type ImageEntry, type ImageOwner, type StoredImages } from './stored-images.ts';

export interface LayeredBuild {
  /** Digest of the stored image below. */
  base: string;
  /** Owns the image. */
  owner: ImageOwner;
  config: ImageConfig;
  /** Opens the layer: a tar archive from a guest. It is read once, to its end. */
  openLayer: (signal: AbortSignal) => AsyncIterable<Buffer>;
  maxLayerBytes: number;
  /** Whether the image gets a name; otherwise it is part of the image cache. */
  isKept: boolean;
  /** The most bytes that the image may have as stored. */
  maxBytes: number;
  signal: AbortSignal;
}

interface Parts {
  images: StoredImages;
  places: UnpackPlaces;
  limits: ImageLimits;
  received: LayerSpace;
}

/** Runs the making of an image when its turn has come. */
export type TakeTurn = <T>(work: () => Promise<T>) => Promise<T>;

/** A layer that was received as a whole. */
interface Layer {
  path: string;
  sizeBytes: number;
}

interface Made {
  layerDigest: string;
  sizeBytes: number;
  path: string;
}

interface Job {
  stagingPath: string;
  base: ImageEntry;
  build: LayeredBuild;
  parts: Parts;
}

/** Free space required beforehand, as a multiple of the base image: its archive, the new image, and room for the layer. */
const EXPANSION = 4;
/** Bytes that are read or written at once. */
const BUFFER_BYTES = 1024 ** 2;
/** The name is control's; two organizations may use the same one. */
const REPOSITORY = 'image';

/** The runner's own name for a built image, without the name that its organization gave it. */
export function builtReference(digest: string): ImageReference {
  return { registry: BUILT_REGISTRY, repository: REPOSITORY, digest };
}

/**
 * Throws `invalid_image` if the layer is malformed or too large, `capacity` if the disk is full. A build that is aborted
 * leaves no image.
 */
export async function buildLayeredImage(
  base: ImageEntry,
  build: LayeredBuild,
  { takeTurn, ...parts }: Parts & { takeTurn: TakeTurn },
): Promise<ImageEntry> {
  const { images, limits } = parts;
  await using staging = await images.makeStaging();
  await checkFreeSpace(staging.path, EXPANSION * base.sizeBytes, limits.minFreeBytes);
  const job = { stagingPath: staging.path, base, build, parts };
  using room = parts.received.open(staging.path, limits.minFreeBytes);
  const layer = await receiveLayer(job, room);
  return await takeTurn(async () => {
    await checkFreeSpace(staging.path, EXPANSION * base.sizeBytes + layer.sizeBytes, limits.minFreeBytes);
    return publish(job, await makeWithin(job, layer));
  });
}

/** Publishes the image, unless its caller has left, who alone would know of it. */
async function publish({ build, base, parts }: Job, made: Made): Promise<ImageEntry> {
  const { images } = parts;
  build.signal.throwIfAborted();
  const digest = digestOf(base, build, made.layerDigest);
  const entry = await images.publish(made.path, {
    digest,
    sizeBytes: made.sizeBytes,
    config: build.config,
    reference: { name: formatPinned(builtReference(digest)), isAnonymous: false },
    owner: build.owner,
    isKept: build.isKept,
  });
  if (!build.signal.aborted) return entry;
  await images.release(digest);
  throw build.signal.reason;
}

/** No two builds have the same digest, so what one gives up is not what the other has made. */
function digestOf(base: ImageEntry, { owner, config }: LayeredBuild, layer: string): string {
  const { env, user, workdir } = config;
  const content = { ...owner, base: base.digest, layer, env, user, workdir };
  const unique = { ...content, made: randomBytes(16).toString('hex') };
  return `sha256:${createHash('sha256').update(JSON.stringify(unique)).digest('hex')}`;
}

/** Writes the layer to a file. Its reader sets the pace, so no more than some chunks are in memory. */
async function receiveLayer({ stagingPath, build, parts: { limits } }: Job, room: LayerRoom): Promise<Layer> {
  const path = join(stagingPath, 'layer');
  let sizeBytes = 0;
  async function* counted(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      sizeBytes += chunk.length;
      if (sizeBytes > build.maxLayerBytes)
        throw new LayerError(
          `what its steps have changed has more than ${build.maxLayerBytes} bytes; give the build a larger disk_mib, or rename no large directory of the image`,
        );
      await room.take(chunk.length);
      yield chunk;
    }
  }
  await within({ stagingPath, build, limits, maxBytes: 2 * build.maxLayerBytes }, (signal) =>
    untilAborted(
      signal,
      pipeline(
        build.openLayer(signal),
        counted,
        createWriteStream(path, { flags: 'wx', mode: 0o600, highWaterMark: BUFFER_BYTES }),
        { signal },
      ),
    ),
  );
  return { path, sizeBytes };
}

async function makeWithin({ stagingPath, base, build, parts }: Job, layer: Layer): Promise<Made> {
  const { limits, places } = parts;
  const baseBytes = maxUnpackedBytes(base.sizeBytes, limits);
  // The archives and the squashfs made from them exist at the same time for a while.
  const maxBytes = 2 * (baseBytes + build.maxLayerBytes);
  const bounds = { stagingPath, build, limits, maxBytes: maxBytes + layer.sizeBytes };
  return within(bounds, async (signal) => {
    await using place = await places.take(maxBytes);
    await using unpacker = await Unpacker.start(place, {
      directory: join(stagingPath, 'layers'),
      maxFileBytes: maxBytes,
      maxBytes: [baseBytes, build.maxLayerBytes],
      limits: pickTreeLimits(limits),
    });
    await unpacker.unpackImage(0, base.path, signal);
    const source = createReadStream(layer.path, { highWaterMark: BUFFER_BYTES });
    const layerDigest = await unpacker.unpackLayer(1, source, signal);
    await rm(layer.path);
    const path = join(stagingPath, 'image');
    await mkdir(path);
    const made = await unpacker.makeImage(join(path, SQUASHFS_NAME), {
      signal,
      maxBytes: build.maxBytes,
      onContentBytes: () => undefined,
      onBytes: () => undefined,
    });
    return { layerDigest, sizeBytes: made.sizeBytes, path };
  });
}

interface Bounds extends Pick<Job, 'stagingPath' | 'build'> {
  limits: ImageLimits;
  maxBytes: number;
}

/** Runs a part of a build within its time and its space. */
async function within<T>(
  { stagingPath, build, limits, maxBytes }: Bounds,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = AbortSignal.timeout(stretched(limits.flattenTimeoutMs));
  const space = { maxBytes, minFreeBytes: limits.minFreeBytes };
  try {
    return await withinSpace(stagingPath, space, AbortSignal.any([build.signal, deadline]), work);
  } catch (error) {
    throw translate(error, build, limits);
  }
}

function translate(error: unknown, build: LayeredBuild, limits: ImageLimits): unknown {
  if (build.signal.aborted) return build.signal.reason;
  if (error instanceof ImageTooLargeError) return tooLarge(build.maxBytes);
  if (error instanceof LayerError)
    return new AppError('invalid_image', `the files of the build cannot become an image: ${error.message}`, {
      cause: error,
    });
  if (error instanceof DOMException && error.name === 'TimeoutError') {
    const seconds = Math.round(limits.flattenTimeoutMs / 1000);
    return new AppError('invalid_image', `the image was not made within ${seconds} s`, { cause: error });
  }
  return isOutOfSpace(error) ? diskFull(error) : error;
}

function tooLarge(maxBytes: number): AppError {
  return new AppError(
    'capacity',
    `the image has more than ${maxBytes} bytes, and your organization has room for no more; delete built images that you do not need`,
  );
}
