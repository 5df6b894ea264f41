import { MAX_BUFFERED_BYTES, collectBytes, watchUpload } from '../transport/bytes.ts';
import type { CallOptions } from '../transport/client-options.ts';
import { Deadline } from '../transport/deadline.ts';
import { fetchPage, PagedList, requireLimit } from '../transport/paged-list.ts';
import { labelOf, type CallRequest, type Transport } from '../transport/transport.ts';
import {
  buildQuery,
  readArray,
  readNumber,
  readObject,
  readOptionalString,
  readString,
} from '../transport/wire.ts';

/** Bounds the time of an upload of known size. Every usable link is faster. */
const SLOWEST_UPLOAD_BYTES_PER_SECOND = 32_768;

/** The default page size of the service. */
const MAX_PAGE_FILES = 1000;

/** Content of an upload. A string is written as UTF-8. */
export type FileContent = string | Uint8Array | Blob | ReadableStream<Uint8Array>;

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
    headers: { 'content-type': 'application/octet-stream' },
    idempotent: true,
    signal: options.signal,
  };
  if (content instanceof ReadableStream) return uploadStream(transport, request, content);
  const body = typeof content === 'string' ? new TextEncoder().encode(content) : requireBytes(content);
  const timeoutMs = transport.timeoutMs + (sizeOf(body) / SLOWEST_UPLOAD_BYTES_PER_SECOND) * 1000;
  return (await transport.callJson({ ...request, body, timeoutMs }, parseUploadResult)).value;
}

async function uploadStream(
  transport: Transport,
  request: CallRequest,
  source: ReadableStream<Uint8Array>,
): Promise<UploadResult> {
  const deadline = new Deadline(labelOf(request), transport.timeoutMs, request.signal);
  const upload = watchUpload(source, deadline, transport.timeoutMs);
  try {
    // A stream can be read only once, so the request cannot be retried.
    const once = { ...request, body: upload.body, idempotent: false };
    return (await transport.callJsonWithin(once, deadline, parseUploadResult)).value;
  } catch (error) {
    const failure = upload.failure();
    throw failure === undefined || deadline.signal.aborted ? error : failure.error;
  } finally {
    upload.abandon(deadline.reasonFor(new Error('the upload is over')));
    deadline.end();
  }
}

/** Reads a file as a stream. */
export async function downloadStream(
  transport: Transport,
  path: string,
  file: string,
  options: CallOptions,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  return transport.callStream({
    method: 'GET',
    path: `${path}/files/download`,
    query: buildQuery({ path: file }),
    idempotent: true,
    signal: options.signal,
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

function requireBytes(content: unknown): Uint8Array | Blob {
  if (content instanceof Uint8Array || content instanceof Blob) return content;
  throw new TypeError(
    'content must be a string, Uint8Array, Blob or ReadableStream; convert a Node stream with Readable.toWeb()',
  );
}

function sizeOf(body: Uint8Array | Blob): number {
  return body instanceof Blob ? body.size : body.byteLength;
}

function formatMode(mode: number | string | undefined): string | undefined {
  if (typeof mode !== 'number') return mode;
  if (Number.isInteger(mode) && mode >= 0 && mode <= 0o7777) return mode.toString(8).padStart(3, '0');
  throw new TypeError(`mode must be between 0 and 0o7777, not ${mode}`);
}

function parseUploadResult(value: unknown): UploadResult {
  const result = readObject(value, 'the upload result');
  return { path: readString(result, 'path'), size: readNumber(result, 'size') };
}

function parseFileEntry(value: unknown): FileEntry {
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
