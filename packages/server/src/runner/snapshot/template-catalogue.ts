/**
 * The templates on disk with their bindings, and the booted guests that they were made from:
 *
 *   <directory>/<key>/ram, devices, base.ext4,                       complete: made elsewhere and renamed to its name;
 *                     scratch.qcow2, template.json                   a booted guest has no disks
 *   <directory>/<key>.building/, <key>.evicted/                     being made or removed; swept at the next start
 */
import { existsSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { CachedTemplate } from '../cache/cache-evictor.ts';
import { TemplateShape as ShapeRecord } from '../vm/vm-record.ts';
import { LastUse } from '../cache/last-use.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import type { TemplateShape } from '../vm/shape.ts';

const RECORD_NAME = 'template.json';
const UNFINISHED = /\.(?:building|evicted)$/u;
const BLOCK_BYTES = 512;

const TemplateRecord = z.object({
  version: z.literal(2),
  /** Absent for a booted guest. */
  image_digest: z.string().optional(),
  image_prepared_at: z.string().optional(),
  shape: ShapeRecord,
  /** Hash of the QEMU, kernel, agent and machine that it was made with. */
  made_with: z.string(),
});
type TemplateRecord = z.infer<typeof TemplateRecord>;

/** The bindings of a new template. */
export interface TemplateBinding {
  /** Undefined for a booted guest. */
  image: Pick<StoredImage, 'digest' | 'preparedAt'> | undefined;
  shape: TemplateShape;
}

interface Entry extends CachedTemplate {
  shape: TemplateShape | undefined;
}

export class TemplateCatalogue {
  readonly #directory: string;
  readonly #madeWith: string;
  readonly #entries = new Map<string, Entry>();

  private constructor(directory: string, madeWith: string) {
    this.#directory = directory;
    this.#madeWith = madeWith;
  }

  /** Reads the templates and removes those that were being made or evicted. */
  static open(directory: string, madeWith: string): TemplateCatalogue {
    const catalogue = new TemplateCatalogue(directory, madeWith);
    for (const name of readdirSync(directory)) {
      if (UNFINISHED.test(name)) rmSync(join(directory, name), { recursive: true, force: true });
      else catalogue.#entries.set(name, catalogue.#read(name));
    }
    return catalogue;
  }

  values(): Iterable<CachedTemplate> {
    return this.#entries.values();
  }

  /** Finds a template that a create can use. */
  find(key: string): CachedTemplate | undefined {
    const entry = this.#entries.get(key);
    return entry?.staleReason === undefined ? entry : undefined;
  }

  has(key: string): boolean {
    return this.find(key) !== undefined;
  }

  /** Returns the shapes of the templates made from an image, including those that no create can use. */
  shapesOf(imageDigest: string): TemplateShape[] {
    const own = [...this.#entries.values()].filter((entry) => entry.imageDigest === imageDigest);
    return own.flatMap(({ shape }) => shape ?? []);
  }

  /** Writes the record of a template into the directory in which it is being made. */
  writeRecord(building: string, { image, shape }: TemplateBinding): void {
    const record: TemplateRecord = {
      version: 2,
      ...(image === undefined
        ? {}
        : { image_digest: image.digest, image_prepared_at: image.preparedAt.toISOString() }),
      shape,
      made_with: this.#madeWith,
    };
    writeFileSync(join(building, RECORD_NAME), JSON.stringify(record), { flush: true });
  }

  /** Adds a template whose directory has been renamed to its key. */
  add(key: string): void {
    this.#entries.set(key, this.#read(key));
  }

  /** Removes a template, which is not found any more from the time of the call. */
  async evict(key: string): Promise<void> {
    const directory = join(this.#directory, key);
    const trash = `${directory}.evicted`;
    this.#entries.delete(key);
    rmSync(trash, { recursive: true, force: true });
    renameSync(directory, trash);
    await rm(trash, { recursive: true, force: true, maxRetries: 5 });
  }

  #read(key: string): Entry {
    const directory = join(this.#directory, key);
    const record = findRecord(directory);
    return {
      key,
      sizeBytes: directoryBytes(directory),
      lastUse: LastUse.read(directory),
      imageDigest: record?.image_digest,
      imagePreparedAt: record?.image_prepared_at,
      shape: record?.shape,
      staleReason: this.#judge(directory, record),
    };
  }

  #judge(directory: string, record: TemplateRecord | undefined): string | undefined {
    if (record === undefined || !existsSync(join(directory, 'devices'))) return 'it cannot be read';
    return record.made_with === this.#madeWith ? undefined : 'QEMU, kernel or agent has changed';
  }
}

function findRecord(directory: string): TemplateRecord | undefined {
  try {
    return TemplateRecord.parse(JSON.parse(readFileSync(join(directory, RECORD_NAME), 'utf8')));
  } catch {
    return undefined;
  }
}

/** Returns the bytes used on disk: memory files are sparse. */
function directoryBytes(directory: string): number {
  let bytes = 0;
  for (const name of readdirSync(directory)) bytes += statSync(join(directory, name)).blocks * BLOCK_BYTES;
  return bytes;
}
