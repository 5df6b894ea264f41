/**
 * Imports an image from an untrusted layout: index → manifest for this platform → config and layers, each verified
 * against its digest while it is copied. The image becomes visible only when all of it is copied.
 */
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { mkdir, open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  AppError,
  formatImageReference,
  LOCAL_REGISTRY,
  parseImageReference,
  type ImageReference,
} from '@coppice/contract';
import { z } from 'zod';
import { syncDirectory } from '../../../lib/files/durable-file.ts';
import { checkFreeSpace } from '../layers/disk-space.ts';
import { parseImageConfig } from '../source/image-config.ts';
import type { ImageLimits } from '../layers/image-limits.ts';
import {
  checkManifest,
  compressedBytes,
  parseManifest,
  selectPlatform,
  type ImageManifest,
} from '../source/manifest.ts';
import { openLayout, refuse, type LayoutSource } from './layout-source.ts';
import type { LocalImages } from './local-images.ts';

export interface LayoutImportOptions {
  images: LocalImages;
  /** Layout directory or archive. */
  path: string;
  /** `local/<name>:<tag>` */
  as: string;
  /** The `org.opencontainers.image.ref.name` of the image to import, if the layout has several. */
  name: string | undefined;
  limits: ImageLimits;
}

export interface ImportedImage {
  reference: string;
  digest: string;
  layers: number;
  sizeBytes: number;
  /** Digest that the reference pointed to before, if another. */
  replaced: string | undefined;
}

const TAG_ANNOTATION = 'org.opencontainers.image.ref.name';

const LayoutIndex = z.object({
  manifests: z
    .array(
      z.object({
        digest: z.string().regex(/^sha256:[0-9a-f]{64}$/u),
        annotations: z.record(z.string(), z.string()).nullish(),
      }),
    )
    .max(1024),
});

/** Parses `local/<name>:<tag>`. Throws `invalid_image` for any other reference. */
export function parseLocalReference(text: string): ImageReference {
  const reference = parseImageReference(text);
  if (reference.registry !== LOCAL_REGISTRY) {
    throw new AppError(
      'invalid_image',
      `--as ${JSON.stringify(text)}: imported images are named "${LOCAL_REGISTRY}/<name>:<tag>"; other names belong to registries`,
    );
  }
  if (reference.digest === undefined && reference.tag !== undefined) return reference;
  throw new AppError(
    'invalid_image',
    `--as ${JSON.stringify(text)}: give a tag and no digest; the content has its own digest`,
  );
}

/** Imports one image; run one import at a time. Throws `AppError` that says what is wrong, and then leaves nothing. */
export async function importLayout(options: LayoutImportOptions): Promise<ImportedImage> {
  const { images, path, name, limits } = options;
  const reference = formatImageReference(parseLocalReference(options.as));
  await using layout = await openLayout(path);
  const top = await chooseImage(layout, path, name);
  images.makeDirectories();
  sweepAbandoned(images.stagingPath);
  const staged = mkdtempSync(join(images.stagingPath, 'import-'));
  try {
    const copy = new VerifiedCopy(layout, path, staged);
    await copy.begin();
    const { digest, manifest } = await copyManifest(copy, top, limits);
    await checkFreeSpace(staged, compressedBytes(manifest), limits.minFreeBytes);
    await copyContent(copy, manifest);
    await copy.end(digest);
    const { replaced } = images.publish(reference, digest, staged);
    return {
      reference,
      digest,
      layers: manifest.layers.length,
      sizeBytes: compressedBytes(manifest),
      replaced,
    };
  } finally {
    rmSync(staged, { recursive: true, force: true });
  }
}

/** Removes the files of imports and removals that were killed. */
function sweepAbandoned(stagingPath: string): void {
  for (const name of readdirSync(stagingPath))
    rmSync(join(stagingPath, name), { recursive: true, force: true });
}

async function chooseImage(layout: LayoutSource, path: string, name: string | undefined): Promise<string> {
  const marker = await layout.find('oci-layout');
  const file = await layout.find('index.json');
  if (file === undefined || marker === undefined)
    throw refuse(`${path} is no OCI layout: it has no ${marker === undefined ? 'oci-layout' : 'index.json'}`);
  const index = LayoutIndex.safeParse(await readJson(file, `${path}: index.json`));
  if (!index.success) throw refuse(`${path}: index.json is malformed: ${z.prettifyError(index.error)}`);
  const { manifests } = index.data;
  const names = manifests.map(({ annotations }) => annotations?.[TAG_ANNOTATION] ?? '(no name)');
  const chosen = name === undefined ? manifests : manifests.filter((_, at) => names[at] === name);
  const [only] = chosen;
  if (only !== undefined && chosen.length === 1) return only.digest;
  if (manifests.length === 0) throw refuse(`${path} holds no image`);
  const offered = names
    .slice(0, 16)
    .map((text) => JSON.stringify(text))
    .join(', ');
  throw refuse(
    `${path} holds ${manifests.length} images, ${name === undefined ? 'choose one with' : `none or several for`} --name${name === undefined ? '' : ` ${JSON.stringify(name)}`}: ${offered}`,
  );
}

const MAX_INDEX_BYTES = 4 << 20;

async function readJson(
  file: { sizeBytes: number; read(): AsyncIterable<Buffer> },
  what: string,
): Promise<unknown> {
  if (file.sizeBytes > MAX_INDEX_BYTES)
    throw refuse(`${what} has ${file.sizeBytes} bytes, at most ${MAX_INDEX_BYTES} are read`);
  const chunks: Buffer[] = [];
  for await (const chunk of file.read()) chunks.push(chunk);
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (error) {
    throw refuse(`${what} is not JSON`, error);
  }
}

async function copyManifest(
  copy: VerifiedCopy,
  top: string,
  limits: ImageLimits,
): Promise<{ digest: string; manifest: ImageManifest }> {
  const data = await copy.readBlob(top, limits.maxManifestBytes);
  const parsed = parseManifest(copy.path, data);
  if (parsed.kind === 'image') return { digest: top, manifest: await keep(top, data, parsed.manifest) };
  const digest = selectPlatform(copy.path, parsed.index);
  const inner = await copy.readBlob(digest, limits.maxManifestBytes);
  const second = parseManifest(copy.path, inner);
  if (second.kind === 'index') throw refuse(`${copy.path}: its index leads to a second index`);
  return { digest, manifest: await keep(digest, inner, second.manifest) };

  async function keep(of: string, bytes: Buffer, manifest: ImageManifest): Promise<ImageManifest> {
    checkManifest(copy.path, manifest, limits);
    await copy.writeBlob(of, bytes);
    return manifest;
  }
}

async function copyContent(copy: VerifiedCopy, { config, layers }: ImageManifest): Promise<void> {
  await copy.copyBlob(config);
  const { diffIds } = parseImageConfig(copy.path, await copy.readBack(config.digest));
  if (diffIds.length !== layers.length)
    throw refuse(`${copy.path}: its config and its manifest disagree on the number of layers`);
  for (const layer of layers) await copy.copyBlob(layer);
}

/** Copies blobs into a new layout and verifies each. */
class VerifiedCopy {
  readonly #layout: LayoutSource;
  /** Path of the source, for messages. */
  readonly path: string;
  readonly #target: string;
  readonly #copied = new Set<string>();

  constructor(layout: LayoutSource, path: string, target: string) {
    this.#layout = layout;
    this.path = path;
    this.#target = target;
  }

  async begin(): Promise<void> {
    await mkdir(join(this.#target, 'blobs', 'sha256'), { recursive: true });
    await writeFile(join(this.#target, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}', { flush: true });
  }

  /** Writes the index, which makes the copy a layout of this one image. */
  async end(digest: string): Promise<void> {
    const { length: size } = await this.readBack(digest);
    const mediaType = 'application/vnd.oci.image.manifest.v1+json';
    const index = { schemaVersion: 2, manifests: [{ mediaType, digest, size }] };
    await writeFile(join(this.#target, 'index.json'), JSON.stringify(index), { flush: true });
    for (const part of ['blobs/sha256', 'blobs', '']) syncDirectory(join(this.#target, part));
  }

  async readBlob(digest: string, maxBytes: number): Promise<Buffer> {
    const file = await this.#find(digest);
    if (file.sizeBytes > maxBytes)
      throw refuse(`${this.path}: ${digest} has ${file.sizeBytes} bytes, at most ${maxBytes} are read`);
    const chunks: Buffer[] = [];
    for await (const chunk of file.read()) chunks.push(chunk);
    const data = Buffer.concat(chunks);
    this.#check(digest, createHash('sha256').update(data).digest('hex'));
    return data;
  }

  async writeBlob(digest: string, data: Buffer): Promise<void> {
    await writeFile(this.#targetPath(digest), data, { flush: true });
    this.#copied.add(digest);
  }

  /** Copies a blob; one that two layers share is copied once. */
  async copyBlob({ digest, size }: { digest: string; size: number }): Promise<void> {
    if (this.#copied.has(digest)) return;
    const file = await this.#find(digest);
    if (file.sizeBytes !== size)
      throw refuse(`${this.path}: ${digest} has ${file.sizeBytes} bytes, its manifest says ${size}`);
    const hash = createHash('sha256');
    await using target = await open(this.#targetPath(digest), 'wx', 0o600);
    for await (const chunk of file.read()) {
      hash.update(chunk);
      await target.write(chunk);
    }
    this.#check(digest, hash.digest('hex'));
    await target.sync();
    this.#copied.add(digest);
  }

  readBack(digest: string): Promise<Buffer> {
    return readFile(this.#targetPath(digest));
  }

  async #find(digest: string) {
    const file = await this.#layout.find(`blobs/${digest.replace(':', '/')}`);
    if (file === undefined) throw refuse(`${this.path}: the blob ${digest} is missing`);
    return file;
  }

  #check(digest: string, actualHex: string): void {
    if (digest === `sha256:${actualHex}`) return;
    throw refuse(
      `${this.path}: the blob ${digest} is damaged, its content has the digest sha256:${actualHex}`,
    );
  }

  #targetPath(digest: string): string {
    return join(this.#target, 'blobs', ...digest.split(':'));
  }
}
