/** An untrusted OCI layout, in a directory or in a tar archive. */
import { constants } from 'node:fs';
import { lstat, open, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { readTar } from '../../../lib/tar/tar-reader.ts';

const CHUNK_BYTES = 1 << 20;
/** Largest number of files in an archive; a layout has a blob for each layer and a few more. */
const MAX_FILES = 10_000;
const GZIP_MAGIC = '1f8b';
const ZSTD_MAGIC = '28b52ffd';

export interface LayoutSource extends AsyncDisposable {
  /** Returns undefined if the layout has no such file; `name` is relative, such as `blobs/sha256/…`. */
  find(name: string): Promise<LayoutFile | undefined>;
}

interface LayoutFile {
  sizeBytes: number;
  read(): AsyncIterable<Buffer>;
}

/** Opens the layout at `path`: a directory, or an archive from `podman save --format oci-archive`. */
export async function openLayout(path: string): Promise<LayoutSource> {
  const info = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    throw refuse(`${path} cannot be read (${error.code ?? error.message})`, error);
  });
  if (info.isDirectory()) return new DirectoryLayout(path);
  if (info.isFile()) return ArchiveLayout.open(path);
  throw refuse(`${path} is neither a directory nor an archive; give the path itself, not a link to it`);
}

export function refuse(message: string, cause?: unknown): AppError {
  return new AppError('invalid_image', message, { cause });
}

class DirectoryLayout implements LayoutSource {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** No component may be a link: an untrusted layout must not make the import read other files as root. */
  async find(name: string): Promise<LayoutFile | undefined> {
    const parts = name.split('/');
    for (let count = 1; count <= parts.length; count++) {
      const path = join(this.#path, ...parts.slice(0, count));
      const info = await lstat(path).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return undefined;
        throw refuse(`${path} cannot be read (${error.code ?? error.message})`, error);
      });
      if (info === undefined) return undefined;
      const isSound = count === parts.length ? info.isFile() : info.isDirectory();
      if (info.isSymbolicLink())
        throw refuse(`${path} is a symbolic link; a layout must contain the files themselves`);
      if (!isSound) throw refuse(`${path} is not a ${count === parts.length ? 'file' : 'directory'}`);
    }
    const path = join(this.#path, ...parts);
    const { size } = await lstat(path);
    return { sizeBytes: size, read: () => readWhole(path, size) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.resolve();
  }
}

async function* readWhole(path: string, sizeBytes: number): AsyncGenerator<Buffer> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  yield* readPart(file, 0, sizeBytes);
}

class ArchiveLayout implements LayoutSource {
  readonly #file: FileHandle;
  readonly #places: ReadonlyMap<string, { offset: number; sizeBytes: number }>;

  private constructor(file: FileHandle, places: ReadonlyMap<string, { offset: number; sizeBytes: number }>) {
    this.#file = file;
    this.#places = places;
  }

  static async open(path: string): Promise<ArchiveLayout> {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      await refuseCompressed(path, file);
      const places = await listFiles(path, file);
      if (places.has('manifest.json') && !places.has('index.json')) {
        throw refuse(
          `${path} is a docker-archive; save the image with "podman save --format oci-archive", or convert it with "skopeo copy docker-archive:${path} oci:<directory>:<tag>"`,
        );
      }
      return new ArchiveLayout(file, places);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  async find(name: string): Promise<LayoutFile | undefined> {
    const place = this.#places.get(name);
    if (place === undefined) return Promise.resolve(undefined);
    const { offset, sizeBytes } = place;
    return Promise.resolve({ sizeBytes, read: () => readPart(this.#file, offset, sizeBytes) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close();
  }
}

async function refuseCompressed(path: string, file: FileHandle): Promise<void> {
  const head = Buffer.alloc(4);
  await file.read(head, 0, head.length, 0);
  const magic = head.toString('hex');
  if (!magic.startsWith(GZIP_MAGIC) && magic !== ZSTD_MAGIC) return;
  const tool = magic === ZSTD_MAGIC ? 'zstd -d' : 'gunzip';
  throw refuse(`${path} is compressed; unpack it with ${tool} first, its layers are compressed anyway`);
}

/**
 * Lists only regular files: links in an archive are ignored. Throws for two files of one name, as neither is
 * preferable.
 */
async function listFiles(
  path: string,
  file: FileHandle,
): Promise<Map<string, { offset: number; sizeBytes: number }>> {
  const places = new Map<string, { offset: number; sizeBytes: number }>();
  try {
    for await (const entry of readTar(file)) {
      if (entry.type === 'directory') continue;
      const name = entry.name.replace(/^(?:\.\/)+/u, '');
      // docker save writes links next to its OCI layout; they are not needed.
      if (entry.type !== 'file') continue;
      if (places.has(name)) throw refuse(`${path} has two files named ${JSON.stringify(name)}`);
      if (places.size >= MAX_FILES)
        throw refuse(`${path} has more than ${MAX_FILES} files, so it is no layout`);
      places.set(name, { offset: entry.dataOffset, sizeBytes: entry.sizeBytes });
    }
  } catch (error) {
    if (error instanceof LayerError)
      throw refuse(`${path} is not a valid tar archive: ${error.message}`, error);
    throw error;
  }
  return places;
}

async function* readPart(file: FileHandle, offset: number, sizeBytes: number): AsyncGenerator<Buffer> {
  let done = 0;
  while (done < sizeBytes) {
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, sizeBytes - done));
    const { bytesRead } = await file.read(chunk, 0, chunk.length, offset + done);
    if (bytesRead === 0) throw refuse('the layout became shorter while it was read');
    yield chunk.subarray(0, bytesRead);
    done += bytesRead;
  }
}
