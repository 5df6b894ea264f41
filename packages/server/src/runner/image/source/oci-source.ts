/** Built-in images: OCI layouts in directories, made at set-up. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, formatImageReference, LOCAL_REGISTRY, parseImageReference } from '@coppice/contract';
import { z } from 'zod';
import type { Blob } from '../registry/blob-reader.ts';
import type { LocalImages } from '../local/local-images.ts';

export interface BuiltinImage {
  /** Canonical reference, such as `coppice/base:1`. */
  reference: string;
  /** Directory of an OCI layout, with an image of the reference's tag or with only one image. */
  layoutPath: string;
}

const CHUNK_BYTES = 1 << 20;
const TAG_ANNOTATION = 'org.opencontainers.image.ref.name';

const LayoutIndex = z.object({
  manifests: z.array(
    z.object({
      digest: z.string().regex(/^sha256:[0-9a-f]{64}$/u),
      annotations: z.record(z.string(), z.string()).nullish(),
    }),
  ),
});

/** Finds layouts by canonical reference. */
export interface LayoutIndexer {
  /** Returns undefined or throws `image_not_found` if there is none. */
  get(name: string): BuiltinImage | undefined;
  keys(): Iterable<string>;
}

/** Joins the built-in layouts and the imported ones; the latter are read from disk at each look-up. */
export function joinLayouts(builtins: readonly BuiltinImage[], local: LocalImages): LayoutIndexer {
  const known = indexBuiltins(builtins);
  return {
    get: (name) => (name.startsWith(`${LOCAL_REGISTRY}/`) ? local.get(name) : known.get(name)),
    keys: () => known.keys(),
  };
}

/** Indexes built-in images by canonical reference. Throws on a malformed reference. */
function indexBuiltins(builtins: readonly BuiltinImage[]): Map<string, BuiltinImage> {
  return new Map(
    builtins.map(
      (builtin) => [formatImageReference(parseImageReference(builtin.reference)), builtin] as const,
    ),
  );
}

/**
 * Returns the digest of a manifest or index from the layout's own index, read anew, so that a rebuilt layout is seen at
 * once. Throws `internal` when the layout cannot be read.
 */
export async function findLayoutImage(layoutPath: string, image: string, tag: string): Promise<string> {
  const unreadable = (cause: unknown) =>
    new AppError('internal', `the built-in image ${image} cannot be read; run the set-up again`, { cause });
  let index;
  try {
    index = LayoutIndex.parse(JSON.parse(await readFile(join(layoutPath, 'index.json'), 'utf8')));
  } catch (error) {
    throw unreadable(error);
  }
  const { manifests } = index;
  const named = manifests.find(({ annotations }) => annotations?.[TAG_ANNOTATION] === tag);
  const chosen = named ?? (manifests.length === 1 ? manifests[0] : undefined);
  if (chosen === undefined) throw unreadable(new Error(`${layoutPath} has no image ${tag}`));
  return chosen.digest;
}

/** Reads a manifest of the layout, unverified. */
export async function readLayoutManifest(layoutPath: string, digest: string): Promise<Buffer> {
  return readFile(blobPath(layoutPath, digest));
}

/** Reads a blob of the layout and verifies it at its end. Throws `internal` when it is damaged. */
export async function* readLayoutBlob(
  layoutPath: string,
  blob: Blob,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  const file = createReadStream(blobPath(layoutPath, blob.digest), { signal, highWaterMark: CHUNK_BYTES });
  for await (const chunk of file as AsyncIterable<Buffer>) {
    hash.update(chunk);
    yield chunk;
  }
  if (`sha256:${hash.digest('hex')}` === blob.digest) return;
  throw new AppError('internal', `a file of a built-in image is damaged; run the set-up again`, {
    cause: new Error(`${layoutPath}: ${blob.digest} has another content`),
  });
}

function blobPath(layoutPath: string, digest: string): string {
  return join(layoutPath, 'blobs', ...digest.split(':'));
}
