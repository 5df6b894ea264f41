/**
 * Writes an OCI image layout with one uncompressed layer: https://github.com/opencontainers/image-spec, image-layout.md
 */
import { createHash } from 'node:crypto';
import { mkdir, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileHash } from '../hash.mjs';

const TYPES = {
  index: 'application/vnd.oci.image.index.v1+json',
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  config: 'application/vnd.oci.image.config.v1+json',
  layer: 'application/vnd.oci.image.layer.v1.tar',
};

/**
 * @typedef {object} ImageDescription
 * @property {string} tag
 * @property {string} created  ISO 8601
 * @property {string} createdBy
 * @property {{ Env: string[], Cmd: string[], WorkingDir: string, User?: string }} config
 *
 * @param {string} directory
 * @param {string} layerPath tar archive, which is moved into the layout
 * @param {ImageDescription} image
 */
export async function writeOciLayout(directory, layerPath, image) {
  const blobs = join(directory, 'blobs', 'sha256');
  await mkdir(blobs, { recursive: true });
  const layer = await moveBlob(blobs, layerPath, TYPES.layer);
  const config = await writeBlob(blobs, TYPES.config, {
    created: image.created,
    architecture: 'amd64',
    os: 'linux',
    config: image.config,
    // The layer is not compressed, so the digest of its blob equals the digest of its content.
    rootfs: { type: 'layers', diff_ids: [layer.digest] },
    history: [{ created: image.created, created_by: image.createdBy }],
  });
  const manifest = await writeBlob(blobs, TYPES.manifest, {
    schemaVersion: 2,
    mediaType: TYPES.manifest,
    config,
    layers: [layer],
  });
  const entry = {
    ...manifest,
    platform: { architecture: 'amd64', os: 'linux' },
    annotations: { 'org.opencontainers.image.ref.name': image.tag },
  };
  await writeJson(join(directory, 'index.json'), {
    schemaVersion: 2,
    mediaType: TYPES.index,
    manifests: [entry],
  });
  await writeJson(join(directory, 'oci-layout'), { imageLayoutVersion: '1.0.0' });
}

/**
 * @param {string} blobs
 * @param {string} path
 * @param {string} mediaType
 */
async function moveBlob(blobs, path, mediaType) {
  const hash = await fileHash(path);
  const { size } = await stat(path);
  await rename(path, join(blobs, hash));
  return { mediaType, digest: `sha256:${hash}`, size };
}

/**
 * @param {string} blobs
 * @param {string} mediaType
 * @param {object} content
 */
async function writeBlob(blobs, mediaType, content) {
  const bytes = Buffer.from(JSON.stringify(content));
  const hash = createHash('sha256').update(bytes).digest('hex');
  await writeFile(join(blobs, hash), bytes);
  return { mediaType, digest: `sha256:${hash}`, size: bytes.length };
}

/**
 * @param {string} path
 * @param {object} content
 */
async function writeJson(path, content) {
  await writeFile(path, JSON.stringify(content));
}
