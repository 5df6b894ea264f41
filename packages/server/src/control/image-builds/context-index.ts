/**
 * Index of a context: what its archive holds, and where. It is made once, when the context arrives, so that neither COPY nor the
 * key of a step reads the archive from its begin again. It is compact, as many contexts may wait in the memory of control.
 */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { ByteWindow } from '../../lib/tar/byte-window.ts';
import { LayerError, quoteName } from '../../lib/tar/layer-error.ts';
import { MAX_PATH_BYTES, parseLayerPath } from '../../lib/tar/layer-path.ts';
import { readTar, type TarEntry } from '../../lib/tar/tar-reader.ts';
import { Pacer } from './pacer.ts';

export const MAX_ENTRIES = 100_000;
/** Of paths and targets of links. */
const MAX_NAME_BYTES = 8 << 20;
/** Directories of a path: a search looks at each of them. */
export const MAX_DEPTH = 256;
const MAX_MTIME_SECONDS = 0xffff_ffff;
const READING = { extensionBytes: 64 << 10, extensionsBytes: 16 << 20, keepsXattrs: false };
const WINDOW_BYTES = 1 << 20;
const DIGEST_BYTES = 32;
/** Of the columns, for each entry. */
const ENTRY_BYTES = 35;
/** Memory of the largest index. */
export const MAX_INDEX_BYTES = MAX_ENTRIES * (ENTRY_BYTES + DIGEST_BYTES + 1) + MAX_NAME_BYTES;
const TYPES = ['file', 'directory', 'symlink'] as const;

export type ContextType = (typeof TYPES)[number];

export interface ContextEntry {
  type: ContextType;
  mode: number;
  mtimeSeconds: number;
  /** Content in the archive, of a file. */
  dataOffset: number;
  sizeBytes: number;
  /** Of a symbolic link, else empty. A byte string. */
  target: string;
}

/** A context that a build may read. */
export interface ContextFiles {
  /** Of the archive on this host. */
  path: string;
  index: ContextIndex;
}

/** Entries are numbered in the order of the archive. Paths are byte strings without `.` and `..`, empty for the root. */
export class ContextIndex {
  readonly length: number;
  readonly hasLinks: boolean;
  readonly #columns: Columns;
  readonly #names: Buffer;
  #digests: Digests | undefined;

  constructor(columns: Columns, names: Buffer) {
    this.#columns = columns;
    this.#names = names;
    this.length = columns.types.length;
    this.hasLinks = columns.types.includes(TYPES.indexOf('symlink'));
  }

  /** Memory that it takes, digests included. */
  get sizeBytes(): number {
    const columns = Object.values(this.#columns).reduce((sum, { byteLength }) => sum + byteLength, 0);
    return columns + this.#names.byteLength + this.length * (DIGEST_BYTES + 1);
  }

  path(number: number): string {
    const { pathEnds, targetEnds } = this.#columns;
    return this.#names.toString('latin1', number === 0 ? 0 : targetEnds[number - 1], pathEnds[number]);
  }

  type(number: number): ContextType {
    return TYPES[this.#columns.types[number] ?? 0] ?? 'file';
  }

  size(number: number): number {
    return this.#columns.sizes[number] ?? 0;
  }

  entry(number: number): ContextEntry {
    const { modes, times, offsets, pathEnds, targetEnds } = this.#columns;
    return {
      type: this.type(number),
      mode: modes[number] ?? 0,
      mtimeSeconds: times[number] ?? 0,
      dataOffset: offsets[number] ?? 0,
      sizeBytes: this.size(number),
      target: this.#names.toString('latin1', pathEnds[number], targetEnds[number]),
    };
  }

  /** Yields a digest of the content of each of these files. A file is read once, also if other steps copy it, too. */
  async *digest(path: string, numbers: Iterable<number>, signal: AbortSignal): AsyncGenerator<Buffer> {
    const pacer = new Pacer(signal);
    this.#digests ??= {
      isKnown: new Uint8Array(this.length),
      bytes: Buffer.alloc(this.length * DIGEST_BYTES),
    };
    const { isKnown, bytes } = this.#digests;
    await using file = await open(path, 'r');
    const window = new ByteWindow(file, WINDOW_BYTES);
    for (const number of numbers) {
      await pacer.pause();
      if (isKnown[number] !== 1) {
        const { dataOffset, sizeBytes } = this.entry(number);
        const hash = createHash('sha256');
        for (let done = 0; done < sizeBytes;) {
          const wanted = Math.min(sizeBytes - done, WINDOW_BYTES);
          const chunk = await window.view(dataOffset + done, wanted);
          if (chunk.length < wanted) throw new Error('the archive of a context became shorter');
          hash.update(chunk);
          done += chunk.length;
          await pacer.pause();
        }
        hash.digest().copy(bytes, number * DIGEST_BYTES);
        isKnown[number] = 1;
      }
      yield bytes.subarray(number * DIGEST_BYTES, (number + 1) * DIGEST_BYTES);
    }
  }
}

interface Digests {
  isKnown: Uint8Array;
  bytes: Buffer;
}

interface Columns {
  types: Uint8Array;
  modes: Uint16Array;
  times: Float64Array;
  offsets: Float64Array;
  sizes: Float64Array;
  /** Ends in the names: of the path, and of the target that follows it. */
  pathEnds: Uint32Array;
  targetEnds: Uint32Array;
}

/** Reads the archive. Throws {@link LayerError} if it is none, or has what cannot be copied. */
export async function indexContext(path: string, signal: AbortSignal): Promise<ContextIndex> {
  await using file = await open(path, 'r');
  const draft = new Draft();
  for await (const entry of readTar(file, { ...READING, signal })) draft.add(entry);
  return draft.end();
}

class Draft {
  readonly #entries: Record<keyof Columns, number[]> = {
    types: [],
    modes: [],
    times: [],
    offsets: [],
    sizes: [],
    pathEnds: [],
    targetEnds: [],
  };
  #names = Buffer.alloc(1 << 12);
  #used = 0;

  add(entry: TarEntry): void {
    const { types, modes, times, offsets, sizes, pathEnds, targetEnds } = this.#entries;
    if (types.length >= MAX_ENTRIES) throw new LayerError(`it has more than ${MAX_ENTRIES} entries`);
    const components = parseLayerPath(entry.name);
    if (components.length > MAX_DEPTH)
      throw new LayerError(`${quoteName(entry.name)} lies in more than ${MAX_DEPTH} directories`);
    types.push(checkType(entry));
    modes.push(entry.mode & 0o7777);
    times.push(Math.min(Math.max(entry.mtimeSeconds, 0), MAX_MTIME_SECONDS));
    offsets.push(entry.dataOffset);
    sizes.push(entry.sizeBytes);
    pathEnds.push(this.#append(components.join('/')));
    targetEnds.push(this.#append(entry.type === 'symlink' ? entry.linkName : ''));
  }

  end(): ContextIndex {
    const { types, modes, times, offsets, sizes, pathEnds, targetEnds } = this.#entries;
    const columns = {
      types: Uint8Array.from(types),
      modes: Uint16Array.from(modes),
      times: Float64Array.from(times),
      offsets: Float64Array.from(offsets),
      sizes: Float64Array.from(sizes),
      pathEnds: Uint32Array.from(pathEnds),
      targetEnds: Uint32Array.from(targetEnds),
    };
    return new ContextIndex(columns, Buffer.from(this.#names.subarray(0, this.#used)));
  }

  /** Returns the end of the name. */
  #append(name: string): number {
    const end = this.#used + name.length;
    if (end > MAX_NAME_BYTES) throw new LayerError(`its names have more than ${MAX_NAME_BYTES} bytes`);
    if (end > this.#names.length) {
      const grown = Buffer.alloc(Math.max(end, Math.min(2 * this.#names.length, MAX_NAME_BYTES)));
      this.#names.copy(grown, 0, 0, this.#used);
      this.#names = grown;
    }
    this.#names.write(name, this.#used, 'latin1');
    this.#used = end;
    return end;
  }
}

/** Returns the number of the type. */
function checkType({ name, type, linkName }: TarEntry): number {
  const number = TYPES.findIndex((known) => known === type);
  if (number === -1)
    throw new LayerError(
      `${quoteName(name)} is a ${type}; only files, directories and symbolic links can be copied`,
    );
  if (type === 'symlink' && (linkName === '' || linkName.length > MAX_PATH_BYTES || linkName.includes('\0')))
    throw new LayerError(`${quoteName(name)} is a symbolic link with an empty or overlong target`);
  return number;
}
