/** Built-in images: OCI layouts in a directory, made at set-up. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, formatImageReference, LOCAL_REGISTRY, parseImageReference } from '@coppice/contract';
import { z } from 'zod';
import type { LocalImages } from './local/local-images.ts';

export interface BuiltinImage {
  /** `coppice/base:1` */
  reference: string;
  /** Directory of an OCI layout. Its image of the reference's tag, or its only one, is taken. */
  layoutPath: string;
}

const TAG_ANNOTATION = 'org.opencontainers.image.ref.name';

const LayoutIndex = z.object({
  manifests: z.array(
    z.object({
      digest: z.string().regex(/^sha256:[0-9a-f]{64}$/u),
      annotations: z.record(z.string(), z.string()).nullish(),
    }),
  ),
});

export interface LayoutImage {
  /** Of the manifest or index. */
  digest: string;
  /** The name in the layout that skopeo finds it by, empty if it has none. */
  tag: string;
}

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

/** Reads the layout's index: no process is started and a layout that was built anew is seen at once. */
export async function findLayoutImage(layoutPath: string, image: string, tag: string): Promise<LayoutImage> {
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
  return { digest: chosen.digest, tag: chosen.annotations?.[TAG_ANNOTATION] ?? '' };
}

/** A blob of the layout, unverified. */
export async function readLayoutBlob(layoutPath: string, digest: string): Promise<Buffer> {
  return readFile(join(layoutPath, 'blobs', ...digest.split(':')));
}
