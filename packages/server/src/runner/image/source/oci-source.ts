/** Built-in images: OCI layouts in a directory, made at set-up. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, formatImageReference, LOCAL_REGISTRY, parseImageReference } from '@coppice/contract';
import { z } from 'zod';
import type { Blob } from '../registry/blob-reader.ts';
import type { LocalImages } from '../local/local-images.ts';

export interface BuiltinImage {
  /** `coppice/base:1` */
  reference: string;
  /** Directory of an OCI layout. Its image of the reference's tag, or its only one, is taken. */
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

/** By canonical reference. */
export interface LayoutIndexer {
  /** Undefined or `image_not_found` if there is none. */
  get(name: string): BuiltinImage | undefined;
  keys(): Iterable<string>;
}

/** Those of the set-up and those that were imported since; the latter are looked up anew each time. */
export function joinLayouts(builtins: readonly BuiltinImage[], local: LocalImages): LayoutIndexer {
  const known = indexBuiltins(builtins);
  return {
    get: (name) => (name.startsWith(`${LOCAL_REGISTRY}/`) ? local.get(name) : known.get(name)),
    keys: () => known.keys(),
  };
}

/** Throws on a reference that is none. */
function indexBuiltins(builtins: readonly BuiltinImage[]): Map<string, BuiltinImage> {
  return new Map(
    builtins.map(
      (builtin) => [formatImageReference(parseImageReference(builtin.reference)), builtin] as const,
    ),
  );
}

/** The digest of a manifest or index, read from the layout's own index: a layout that was built anew is seen at once. */
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

/** A manifest of the layout, unverified. */
export async function readLayoutManifest(layoutPath: string, digest: string): Promise<Buffer> {
  return readFile(blobPath(layoutPath, digest));
}

/** A blob of the layout, verified at its end. */
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
