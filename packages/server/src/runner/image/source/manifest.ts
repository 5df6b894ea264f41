/** Manifests of registries and OCI layouts: for one image, or an index of images by platform. */
import { createHash } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { PLATFORM, wrongPlatform } from './image-config.ts';
import type { ImageLimits } from '../layers/image-limits.ts';

const Digest = z.string().regex(/^sha256:[0-9a-f]{64}$/u);

const Descriptor = z.object({
  mediaType: z.string().max(256).default(''),
  digest: Digest,
  size: z.int().nonnegative(),
});

const Index = z.object({
  manifests: z
    .array(
      Descriptor.extend({
        platform: z.object({ os: z.string(), architecture: z.string() }).optional(),
        annotations: z.record(z.string(), z.string()).nullish(),
      }),
    )
    .max(1024),
});
export type ImageIndex = z.infer<typeof Index>;

const Manifest = z.object({ config: Descriptor, layers: z.array(Descriptor) });
export type ImageManifest = z.infer<typeof Manifest>;

const CONFIG_TYPES: ReadonlySet<string> = new Set([
  'application/vnd.oci.image.config.v1+json',
  'application/vnd.docker.container.image.v1+json',
]);

const LAYER_TYPES: ReadonlySet<string> = new Set([
  'application/vnd.oci.image.layer.v1.tar',
  'application/vnd.oci.image.layer.v1.tar+gzip',
  'application/vnd.oci.image.layer.v1.tar+zstd',
  'application/vnd.docker.image.rootfs.diff.tar',
  'application/vnd.docker.image.rootfs.diff.tar.gzip',
  'application/vnd.docker.image.rootfs.diff.tar.zstd',
]);

export type ParsedManifest =
  | { kind: 'index'; index: ImageIndex }
  | { kind: 'image'; manifest: ImageManifest };

export function digestOf(data: Buffer): string {
  return `sha256:${createHash('sha256').update(data).digest('hex')}`;
}

export function parseManifest(image: string, data: Buffer): ParsedManifest {
  let json: unknown;
  try {
    json = JSON.parse(data.toString('utf8'));
  } catch (error) {
    throw new AppError('invalid_image', `image ${image}: its manifest is not JSON`, { cause: error });
  }
  if (typeof json === 'object' && json !== null && 'manifests' in json && 'layers' in json) {
    // One digest must not mean two images to two readers (CVE-2021-41190).
    throw new AppError('invalid_image', `image ${image}: its manifest is both an image and an index`);
  }
  const index = Index.safeParse(json);
  if (index.success) return { kind: 'index', index: index.data };
  const manifest = Manifest.safeParse(json);
  if (manifest.success) return { kind: 'image', manifest: manifest.data };
  throw new AppError(
    'invalid_image',
    `image ${image}: its manifest is of an unknown kind (OCI and Docker schema 2 are known); schema 1 images must be pushed again`,
  );
}

/** Returns the digest of the index's image for this platform, or of its only entry if that names no platform. */
export function selectPlatform(image: string, index: ImageIndex): string {
  const { manifests } = index;
  const match = manifests.find(
    ({ platform }) => platform?.os === PLATFORM.os && platform.architecture === PLATFORM.architecture,
  );
  if (match !== undefined) return match.digest;
  const [only] = manifests;
  if (only !== undefined && manifests.length === 1 && only.platform === undefined) return only.digest;
  const offered = manifests.flatMap(({ platform }) =>
    platform === undefined || platform.os === 'unknown' ? [] : [`${platform.os}/${platform.architecture}`],
  );
  throw wrongPlatform(image, offered.length === 0 ? ['no platform'] : [...new Set(offered)].slice(0, 8));
}

/** Throws `invalid_image`, before any download, for a manifest that is no container image or is too large. */
export function checkManifest(image: string, manifest: ImageManifest, limits: ImageLimits): void {
  const { config, layers } = manifest;
  if (!CONFIG_TYPES.has(config.mediaType)) {
    throw new AppError(
      'invalid_image',
      `${image} is no container image: its config is ${JSON.stringify(config.mediaType)}`,
    );
  }
  for (const layer of layers) checkLayerType(image, layer.mediaType);
  checkLimit(image, 'layers', layers.length, limits.maxLayers);
  checkLimit(image, 'bytes of config', config.size, limits.maxConfigBytes);
  checkLimit(image, 'bytes of layers', compressedBytes(manifest), limits.maxCompressedBytes);
}

function checkLayerType(image: string, mediaType: string): void {
  if (LAYER_TYPES.has(mediaType)) return;
  const isForeign = /foreign|nondistributable/u.test(mediaType);
  const reason = isForeign
    ? 'it has a foreign layer, which its registry does not hold (Windows images have them)'
    : `it has a layer of the unsupported kind ${JSON.stringify(mediaType)}`;
  throw new AppError('invalid_image', `image ${image}: ${reason}`);
}

export function compressedBytes(manifest: ImageManifest): number {
  return manifest.layers.reduce((total, layer) => total + layer.size, 0);
}

function checkLimit(image: string, what: string, value: number, max: number): void {
  if (value > max)
    throw new AppError('invalid_image', `image ${image} has ${value} ${what}, at most ${max} are allowed`);
}
