/**
 * The files of the documentation, which set-up has built. They are read into memory as root at the start: control itself
 * may be unable to read them, and no path of a request ever becomes a path of a file.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { Logger } from 'pino';

const SUFFIX = '.gz';
const PAGE_SUFFIX = '.html';
const NOT_FOUND = '/docs/404';
/** Files whose names have a hash of their content. */
const FIXED = /^\/docs\/assets\//u;
/** Some times what the site has: a wrong directory must not fill the memory. */
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
};

export interface DocumentationFile {
  /** Compressed with gzip. */
  compressed: Buffer;
  type: string;
  /** Hash of the content, for an ETag. */
  hash: string;
  /** Whether the content at this address never changes. */
  isFixed: boolean;
}

export class Documentation {
  readonly #files: ReadonlyMap<string, DocumentationFile>;
  /** The page for unknown paths. */
  readonly notFound: DocumentationFile;

  /** Throws without the page for unknown paths. */
  constructor(files: ReadonlyMap<string, DocumentationFile>) {
    const notFound = files.get(NOT_FOUND);
    if (notFound === undefined) throw new Error(`the documentation has no page ${NOT_FOUND}`);
    this.#files = files;
    this.notFound = notFound;
  }

  /** Finds the file of a path such as `/docs/guides/files`, which is compared as it is. */
  find(path: string): DocumentationFile | undefined {
    return this.#files.get(path);
  }
}

const unpacked = new WeakMap<DocumentationFile, Promise<Buffer>>();

/**
 * Returns the content of a file, for clients that do not accept gzip. All answers share it: a client that asks often and
 * reads nothing must not fill the memory.
 */
export function unpack(file: DocumentationFile): Promise<Buffer> {
  const content =
    unpacked.get(file) ?? promisify(gunzip)(file.compressed, { maxOutputLength: MAX_FILE_BYTES });
  unpacked.set(file, content);
  return content;
}

/** Reads the documentation. A service without it still serves everything else, so a fault is only logged. */
export function loadDocumentation(directory: string | undefined, log: Logger): Documentation | undefined {
  if (directory === undefined) return undefined;
  try {
    return new Documentation(readFiles(directory));
  } catch (error) {
    log.warn({ err: error, directory }, 'the documentation cannot be read: /docs does not exist');
    return undefined;
  }
}

function readFiles(directory: string): Map<string, DocumentationFile> {
  const files = new Map<string, DocumentationFile>();
  let bytes = 0;
  for (const entry of readdirSync(directory, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile() || !entry.name.endsWith(SUFFIX)) continue;
    const file = join(entry.parentPath, entry.name);
    const path = toPath(relative(directory, file));
    const compressed = readFileSync(file);
    bytes += compressed.length;
    if (files.size >= MAX_FILES || bytes > MAX_BYTES)
      throw new Error(`it has more than ${MAX_FILES} files or ${MAX_BYTES} bytes`);
    files.set(path, {
      compressed,
      type: TYPES[extname(path)] ?? 'application/octet-stream',
      hash: createHash('sha256').update(compressed).digest('base64url').slice(0, 22),
      isFixed: FIXED.test(path),
    });
  }
  return files;
}

/** `docs/guides/files.html.gz` is the page `/docs/guides/files`. */
function toPath(file: string): string {
  const path = `/${file.slice(0, -SUFFIX.length)}`;
  return path.endsWith(PAGE_SUFFIX) ? path.slice(0, -PAGE_SUFFIX.length) : path;
}
