import { MAX_BUFFERED_BYTES, collectBytes } from '../transport/bytes.ts';
import type { CallOptions } from '../transport/client-options.ts';
import { fetchPage, PagedList, requireLimit } from '../transport/paged-list.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { sendContent, type FileContent } from '../transport/upload.ts';
import {
  buildQuery,
  readArray,
  readNumber,
  readObject,
  readOptionalString,
  readString,
} from '../transport/wire.ts';

/** The default page size of the service. */
const MAX_PAGE_FILES = 1000;
const PARTIAL_CONTENT = 206;

/** Options of `sandbox.upload()`. */
export interface UploadOptions extends CallOptions {
  /**
   * Permissions, as a number (`0o755`) or as octal text (`'755'`), at most `0o7777`. Default: those of the replaced
   * file, else 644.
   */
  mode?: number | string | undefined;
  /** Owner of the file and of created directories: name, uid, `name:group` or `uid:gid`. Default: the image's USER. */
  user?: string | undefined;
}

/** Result of an upload. */
export interface UploadResult {
  /** Absolute path of the file in the sandbox. */
  path: string;
  /** Size of the file in bytes. */
  size: number;
}

/** Options of `sandbox.download()` and `sandbox.downloadBytes()`. */
export interface DownloadOptions extends CallOptions {
  /** Maximum size in bytes. A larger file rejects with code `response_too_large`. Default 256 MiB. */
  maxBytes?: number | undefined;
}

/** Options of `sandbox.downloadStream()`. */
export interface DownloadStreamOptions extends CallOptions {
  /**
   * First byte to read, from 0 on. With `length` or an offset above 0, rejects with code `range_not_satisfiable` if it is at
   * or after the end of the file. Default 0.
   */
  offset?: number | undefined;
  /** Maximum number of bytes to read, at least 1. Default: up to the end of the file. */
  length?: number | undefined;
}

/** Options of `sandbox.listFiles()`. */
export interface ListFilesOptions extends CallOptions {
  /** Maximum number of entries over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

/** One entry of a directory. */
export interface FileEntry {
  /** Name within the directory. */
  name: string;
  /** Absolute path in the sandbox. */
  path: string;
  /** Type of the entry. */
  type: 'file' | 'dir' | 'symlink' | 'other';
  /** Size in bytes. */
  size: number;
  /** Permissions as octal text, for example `0644`. */
  mode: string;
  /** Time of the last change, ISO 8601 UTC. */
  mtime: string;
  /** Target of a symbolic link. Null for other types. */
  target: string | null;
}

/**
 * Writes a file. In all functions here, `path` is that of the sandbox below the base URL, and `file` that of the file
 * in the sandbox. Throws `TypeError` for content of another type or an invalid mode.
 */
export async function uploadFile(
  transport: Transport,
  path: string,
  file: string,
  upload: { content: FileContent; options: UploadOptions },
): Promise<UploadResult> {
  const { content, options } = upload;
  const request: CallRequest = {
    method: 'POST',
    path: `${path}/files/upload`,
    query: buildQuery({ path: file, mode: formatMode(options.mode), user: options.user }),
    idempotent: true,
    signal: options.signal,
  };
  return sendContent(transport, request, { content, parse: parseUploadResult });
}

/** Reads a file as a stream. Throws `TypeError` for an invalid `offset` or `length`. */
export async function downloadStream(
  transport: Transport,
  path: string,
  file: string,
  { offset = 0, length = Infinity, signal }: DownloadStreamOptions,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  if (!Number.isInteger(offset) || offset < 0)
    throw new TypeError(`offset must be a whole number of at least 0, not ${offset}`);
  if (length !== Infinity && (!Number.isInteger(length) || length < 1))
    throw new TypeError(`length must be a whole number of at least 1, not ${length}`);
  const isPart = offset > 0 || length !== Infinity;
  const { status, body } = await transport.callStreamWithStatus({
    method: 'GET',
    path: `${path}/files/download`,
    query: buildQuery({ path: file }),
    ...(isPart ? { headers: { range: formatRange(offset, length) } } : {}),
    idempotent: true,
    signal,
  });
  // The service sends all of a file that the kernel generates.
  return !isPart || status === PARTIAL_CONTENT ? body : body.pipeThrough(cutBytes(offset, length));
}

function formatRange(offset: number, length: number): string {
  return `bytes=${offset}-${length === Infinity ? '' : offset + length - 1}`;
}

function cutBytes(
  offset: number,
  length: number,
): TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>> {
  let skipped = offset;
  let left = length;
  return new TransformStream({
    transform(chunk, controller) {
      const rest = chunk.subarray(Math.min(skipped, chunk.length));
      skipped -= chunk.length - rest.length;
      const taken = rest.subarray(0, left);
      left -= taken.length;
      if (taken.length > 0) controller.enqueue(taken);
      // Cancels the source, whose rest is not read.
      if (left === 0) controller.terminate();
    },
  });
}

/** Reads a file into memory. Throws {@link CoppiceError} with code `response_too_large` for a file over the limit. */
export async function downloadBytes(
  transport: Transport,
  path: string,
  file: string,
  options: DownloadOptions,
): Promise<Uint8Array<ArrayBuffer>> {
  const stream = await downloadStream(transport, path, file, options);
  return collectBytes(stream, options.maxBytes ?? MAX_BUFFERED_BYTES);
}

/** Lists a directory of the sandbox. Throws `TypeError` for an invalid `limit`. */
export function listDirectory(
  transport: Transport,
  path: string,
  directory: string,
  { limit, signal }: ListFilesOptions,
): PagedList<FileEntry> {
  requireLimit(limit);
  return new PagedList<FileEntry>({
    firstQuery: buildQuery({ path: directory, limit: toFilesPage(limit) }),
    fetchPage: (query) =>
      fetchPage(transport, { path: `${path}/files`, query, signal }, (value) =>
        readArray(value, 'the directory listing', parseFileEntry),
      ),
    limit,
  });
}

/** Returns the page size for a list of at most `limit` entries. Undefined leaves the size to the service. */
function toFilesPage(limit: number | undefined): number | undefined {
  return limit === undefined ? undefined : Math.min(limit, MAX_PAGE_FILES);
}

/** Returns the octal text of a mode. Throws `TypeError` for a number that is none. */
export function formatMode(mode: number | string | undefined): string | undefined {
  if (typeof mode !== 'number') return mode;
  if (Number.isInteger(mode) && mode >= 0 && mode <= 0o7777) return mode.toString(8).padStart(3, '0');
  throw new TypeError(`mode must be between 0 and 0o7777, not ${mode}`);
}

function parseUploadResult(value: unknown): UploadResult {
  const result = readObject(value, 'the upload result');
  return { path: readString(result, 'path'), size: readNumber(result, 'size') };
}

export function parseFileEntry(value: unknown): FileEntry {
  const entry = readObject(value, 'the directory entry');
  return {
    name: readString(entry, 'name'),
    path: readString(entry, 'path'),
    type: parseFileType(readString(entry, 'type')),
    size: readNumber(entry, 'size'),
    mode: readString(entry, 'mode'),
    mtime: readString(entry, 'mtime'),
    target: readOptionalString(entry, 'target'),
  };
}

function parseFileType(type: string): FileEntry['type'] {
  return type === 'file' || type === 'dir' || type === 'symlink' ? type : 'other';
}
