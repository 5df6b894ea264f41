/**
 * Images that the operator imported, `local/<name>:<tag>`, for machines without a registry:
 *
 *   <directory>/layouts/<hex of the manifest's digest>/    an OCI layout of one verified image; never changes
 *   <directory>/names/<hash of the reference>.json         the layout that a reference points to
 *   <directory>/staging/<unique>/                          a layout that is being imported or removed
 *
 * Names are read at each look-up and written by renaming, so that a running service sees an import at once.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { AppError, LOCAL_REGISTRY } from '@coppice/contract';
import { z } from 'zod';
import { syncDirectory, writeDurably } from '../../../lib/files/durable-file.ts';
import type { BuiltinImage } from '../source/oci-source.ts';

const NameRecord = z.object({
  version: z.literal(1),
  reference: z.string(),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/u),
  imported_at: z.iso.datetime(),
});
export type ImportedName = z.infer<typeof NameRecord>;

export class LocalImages {
  readonly #names: string;
  readonly #layouts: string;
  readonly stagingPath: string;

  constructor(directory: string) {
    this.#names = join(directory, 'names');
    this.#layouts = join(directory, 'layouts');
    this.stagingPath = join(directory, 'staging');
  }

  /** Finds an image by its canonical reference, `local/app:1`. Throws `image_not_found` with the remedy. */
  get(reference: string): BuiltinImage {
    const name = readName(this.#namePath(reference));
    if (name?.reference === reference) return { reference, layoutPath: this.#layoutPath(name.digest) };
    throw new AppError(
      'image_not_found',
      `there is no imported image ${reference}; images under "${LOCAL_REGISTRY}/" are never fetched: import it on the server with "coppice admin image import <layout> --as ${reference}"`,
    );
  }

  list(): ImportedName[] {
    if (!existsSync(this.#names)) return [];
    const names = readdirSync(this.#names).flatMap((file) => readName(join(this.#names, file)) ?? []);
    return names.toSorted((a, b) => (a.reference < b.reference ? -1 : 1));
  }

  /** Makes the directories, for root only: the images in them are booted for every user. */
  makeDirectories(): void {
    for (const path of [this.#names, this.#layouts, this.stagingPath])
      mkdirSync(path, { recursive: true, mode: 0o700 });
  }

  /**
   * Points the reference to the complete layout at `stagedPath`. Returns the other digest that it pointed to before.
   */
  publish(reference: string, digest: string, stagedPath: string): { replaced: string | undefined } {
    const before = readName(this.#namePath(reference))?.digest;
    const layout = this.#layoutPath(digest);
    if (existsSync(layout)) rmSync(stagedPath, { recursive: true, force: true });
    else renameSync(stagedPath, layout);
    syncDirectory(this.#layouts);
    const record: ImportedName = { version: 1, reference, digest, imported_at: new Date().toISOString() };
    writeDurably(this.#namePath(reference), `${JSON.stringify(record)}\n`);
    this.#sweepLayouts();
    return { replaced: before === digest ? undefined : before };
  }

  /** Returns false if there is no such name. */
  remove(reference: string): boolean {
    if (readName(this.#namePath(reference)) === undefined) return false;
    rmSync(this.#namePath(reference));
    syncDirectory(this.#names);
    this.#sweepLayouts();
    return true;
  }

  /** Removes the layouts that no name points to. */
  #sweepLayouts(): void {
    const wanted = new Set(this.list().map(({ digest }) => directoryName(digest)));
    for (const name of readdirSync(this.#layouts)) {
      if (wanted.has(name)) continue;
      const trash = join(this.stagingPath, `removed-${name}-${process.hrtime.bigint()}`);
      renameSync(join(this.#layouts, name), trash);
      rmSync(trash, { recursive: true, force: true });
    }
  }

  #namePath(reference: string): string {
    return join(this.#names, `${createHash('sha256').update(reference).digest('hex')}.json`);
  }

  #layoutPath(digest: string): string {
    return join(this.#layouts, directoryName(digest));
  }
}

function directoryName(digest: string): string {
  return digest.replace(':', '-');
}

/** Returns undefined when there is no readable record. */
function readName(path: string): ImportedName | undefined {
  try {
    return NameRecord.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch {
    return undefined;
  }
}
