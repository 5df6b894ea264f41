/**
 * Makes a squashfs file of a stored image and a layer above it: what a build has changed in a sandbox. The layer comes
 * from a guest, so it is as hostile as one of a registry, and takes the same way: unpacked, merged and packed without
 * privileges, within the limits of images.
 *
 *   stored squashfs ──sqfs2tar──► layer 0 ─┐
 *                                          ├─► merge ─► tar2sqfs ─► image of the organization
 *   guest ──runner──────────────► layer 1 ─┘
 */
import { createHash } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, BUILT_REGISTRY, type ImageReference } from '@coppice/contract';
import { stretched } from '../../../lib/waiting/deadline.ts';
import { isDiskFull } from '../../host/full-disk.ts';
import { ProcessError } from '../../host/run-process.ts';
import { checkFreeSpace, withinSpace } from '../layers/disk-space.ts';
import { maxUnpackedBytes, type ImageLimits } from '../layers/image-limits.ts';
import { formatPinned } from '../source/resolver.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { Unpacker } from '../unpacking/unpacker.ts';
import type { UnpackPlaces } from '../unpacking/unpack-places.ts';
import type { ImageConfig } from './image-store.types.ts';
import { pickTreeLimits } from './preparation.ts';
import { SQUASHFS_NAME, type ImageEntry, type StoredImages } from './stored-images.ts';

export interface LayeredBuild {
  /** Digest of the stored image below. */
  base: string;
  /** The organization that will own the image. */
  organization: string;
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
}

interface Made {
  layerDigest: string;
  sizeBytes: number;
  path: string;
}

/** Free space required beforehand, as a multiple of the base image: its archive, the new image, and room for the layer. */
const EXPANSION = 4;
/** The name is control's; two organizations may use the same one. */
const REPOSITORY = 'image';

/** The runner's own name for a built image, without the name that its organization gave it. */
export function builtReference(digest: string): ImageReference {
  return { registry: BUILT_REGISTRY, repository: REPOSITORY, digest };
}

/** Throws `invalid_image` if the layer is malformed or too large, `capacity` if the disk is full. */
export async function buildLayeredImage(
  base: ImageEntry,
  build: LayeredBuild,
  parts: Parts,
): Promise<ImageEntry> {
  const { images, limits } = parts;
  await using staging = await images.makeStaging();
  await checkFreeSpace(staging.path, EXPANSION * base.sizeBytes, limits.minFreeBytes);
  const { layerDigest, sizeBytes, path } = await makeWithin(staging.path, { base, build, parts });
  if (sizeBytes > build.maxBytes) throw tooLarge(sizeBytes, build.maxBytes);
  const digest = digestOf(base, build, layerDigest);
  const known = images.find(digest);
  if (known !== undefined) {
    await images.restore(known, build);
    return known;
  }
  return await images.publish(path, {
    digest,
    sizeBytes,
    config: build.config,
    reference: { name: formatPinned(builtReference(digest)), isAnonymous: false },
    owner: build.organization,
    isKept: build.isKept,
  });
}

/** The organization is part of it: no two of them share an image, even of the same content. */
function digestOf(base: ImageEntry, { organization, config }: LayeredBuild, layer: string): string {
  const { env, user, workdir } = config;
  const content = { organization, base: base.digest, layer, env, user, workdir };
  return `sha256:${createHash('sha256').update(JSON.stringify(content)).digest('hex')}`;
}

async function makeWithin(
  stagingPath: string,
  { base, build, parts }: { base: ImageEntry; build: LayeredBuild; parts: Parts },
): Promise<Made> {
  const { limits, places } = parts;
  const baseBytes = maxUnpackedBytes(base.sizeBytes, limits);
  // The archives and the squashfs made from them exist at the same time for a while.
  const maxBytes = 2 * (baseBytes + build.maxLayerBytes);
  const deadline = AbortSignal.timeout(stretched(limits.flattenTimeoutMs));
  const space = { maxBytes, minFreeBytes: limits.minFreeBytes };
  try {
    return await withinSpace(
      stagingPath,
      space,
      AbortSignal.any([build.signal, deadline]),
      async (signal) => {
        await using place = await places.take(maxBytes);
        await using unpacker = await Unpacker.start(place, {
          directory: join(stagingPath, 'layers'),
          maxFileBytes: maxBytes,
          maxBytes: [baseBytes, build.maxLayerBytes],
          limits: pickTreeLimits(limits),
        });
        await unpacker.unpackImage(0, base.path, signal);
        const layerDigest = await unpacker.unpackLayer(1, build.openLayer(signal), signal);
        const path = join(stagingPath, 'image');
        await mkdir(path);
        const made = await unpacker.makeImage(join(path, SQUASHFS_NAME), {
          signal,
          onContentBytes: () => undefined,
          onBytes: () => undefined,
        });
        return { layerDigest, sizeBytes: made.sizeBytes, path };
      },
    );
  } catch (error) {
    throw translate(error, limits);
  }
}

function translate(error: unknown, limits: ImageLimits): unknown {
  if (error instanceof LayerError)
    return new AppError('invalid_image', `the files of the build cannot become an image: ${error.message}`, {
      cause: error,
    });
  if (error instanceof DOMException && error.name === 'TimeoutError') {
    const seconds = Math.round(limits.flattenTimeoutMs / 1000);
    return new AppError('invalid_image', `the image was not made within ${seconds} s`, { cause: error });
  }
  const saysSo = error instanceof ProcessError && error.stderr.includes('No space left on device');
  if (!saysSo && !isDiskFull(error)) return error;
  return new AppError('capacity', "this machine's disk is full; remove images or sandboxes and try again", {
    cause: error,
  });
}

function tooLarge(sizeBytes: number, maxBytes: number): AppError {
  return new AppError(
    'capacity',
    `the image has ${sizeBytes} bytes, and your organization has room for ${maxBytes} more; delete built images that you do not need`,
  );
}
