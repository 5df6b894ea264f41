/**
 * A site that set-up has built: files, each compressed. They are read into memory as root at the start: control itself
 * may be unable to read them, and no path of a request ever becomes a path of a file.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';

const SUFFIX = '.gz';
const PAGE_SUFFIX = '.html';
/** A name that no router reads as a pattern, and no browser as another path. */
const PATH = /^\/(?:[\w-][\w.-]*(?:\/[\w-][\w.-]*)*)?$/u;
/** Some times what a site has: a wrong directory must not fill the memory. */
const MAX_FILES = 2_000;
const MAX_BYTES = 32 << 20;
const MAX_FILE_BYTES = 16 << 20;

const TYPES: Readonly<Record<string, string>> = {
  '': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.woff2': 'font/woff2',
};

export interface SiteFile {
  /** Compressed with gzip. */
  compressed: Buffer;
  type: string;
  /** Hash of the content, for an ETag. */
  hash: string;
  /** Whether the content at this address never changes. */
  isFixed: boolean;
}

export class StaticSite {
  readonly #files: ReadonlyMap<string, SiteFile>;

  constructor(files: ReadonlyMap<string, SiteFile>) {
    this.#files = files;
  }

  /** The paths of all files; that of a page has no suffix. */
  get paths(): string[] {
    return [...this.#files.keys()];
  }

  /** Finds the file of a path such as `/docs/guides/files`, which is compared as it is. */
  find(path: string): SiteFile | undefined {
    return this.#files.get(path);
  }

  /** Like `find`. Throws without the file. */
  get(path: string): SiteFile {
    const file = this.#files.get(path);
    if (file === undefined) throw new Error(`it has no page ${path}`);
    return file;
  }
}

/** Whether a path of a site is that of a page. */
export function isPage(path: string): boolean {
  return extname(path) === '';
}

const unpacked = new WeakMap<SiteFile, Promise<Buffer>>();

/**
 * Returns the content of a file, for clients that do not accept gzip. All answers share it: a client that asks often and
 * reads nothing must not fill the memory.
 */
export function unpack(file: SiteFile): Promise<Buffer> {
  const content =
    unpacked.get(file) ?? promisify(gunzip)(file.compressed, { maxOutputLength: MAX_FILE_BYTES });
  unpacked.set(file, content);
  return content;
}

/**
 * Reads a site.
 * @param assets  folder of the files whose names have a hash of their content, such as `/assets/`
 */
export function readSite(directory: string, assets: string): StaticSite {
  const files = new Map<string, SiteFile>();
  let bytes = 0;
  for (const entry of readdirSync(directory, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile() || !entry.name.endsWith(SUFFIX)) continue;
    const file = join(entry.parentPath, entry.name);
    const path = toPath(relative(directory, file));
    if (!PATH.test(path)) throw new Error(`${file} has a name that no address may have`);
    const compressed = readFileSync(file);
    bytes += compressed.length;
    if (files.size >= MAX_FILES || bytes > MAX_BYTES)
      throw new Error(`it has more than ${MAX_FILES} files or ${MAX_BYTES} bytes`);
    files.set(path, {
      compressed,
      type: TYPES[extname(path)] ?? 'application/octet-stream',
      hash: createHash('sha256').update(compressed).digest('base64url').slice(0, 22),
      isFixed: path.startsWith(assets),
    });
  }
  return new StaticSite(files);
}

/** `docs/guides/files.html.gz` is the page `/docs/guides/files`, and `index.html.gz` is `/`. */
function toPath(file: string): string {
  const path = `/${file.slice(0, -SUFFIX.length)}`;
  if (path === `/index${PAGE_SUFFIX}`) return '/';
  return path.endsWith(PAGE_SUFFIX) ? path.slice(0, -PAGE_SUFFIX.length) : path;
}
