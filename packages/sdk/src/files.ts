import { MAX_BUFFERED_BYTES, collectBytes, watchUpload } from './transport/bytes.ts';
import type { CallOptions } from './transport/client-options.ts';
import { Deadline } from './transport/deadline.ts';
import { fetchPage, PagedList, requireLimit } from './transport/paged-list.ts';
import { labelOf, type CallRequest, type Transport } from './transport/transport.ts';
import {
  buildQuery,
  readArray,
  readNumber,
  readObject,
  readOptionalString,
  readString,
} from './transport/wire.ts';

/** A body of known size may take this long: slower than any link that is of use. */
const SLOWEST_UPLOAD_BYTES_PER_SECOND = 32_768;

/** The service's own default. */
const MAX_PAGE_FILES = 1000;

/** What can be written into a sandbox. Text is written as UTF-8. */
export type FileContent = string | Uint8Array | Blob | ReadableStream<Uint8Array>;

/** How to write a file. */
export interface UploadOptions extends CallOptions {
  /** Permissions, as a number (`0o755`) or octal text (`'755'`). Default: those of the file it replaces, else 644. */
  mode?: number | string | undefined;
  /**
   * Owner of the file and of directories that are created: name, uid, `name:group` or `uid:gid`. Default: the image's USER.
   */
  user?: string | undefined;
}

/** What was written. */
export interface UploadResult {
  /** Absolute path. */
  path: string;
  /** Bytes. */
  size: number;
}

/** How to read a file into memory. */
export interface DownloadOptions extends CallOptions {
  /** A larger file is refused with `response_too_large`. Default 256 MiB. */
  maxBytes?: number | undefined;
}

/** How much of a directory to list. */
export interface ListFilesOptions extends CallOptions {
  /** At most this many in all. Default: every one. */
  limit?: number | undefined;
}

/** One entry of a directory. */
export interface FileEntry {
  name: string;
  /** Absolute path. */
  path: string;
  type: 'file' | 'dir' | 'symlink' | 'other';
  /** Bytes. */
  size: number;
  /** Permissions as octal text, for example `0644`. */
  mode: string;
  /** Last change, ISO 8601 UTC. */
  mtime: string;
  /** Where a symbolic link points; null for all else. */
  target: string | null;
}

/** `path` in all functions here is that of the sandbox, `file` that inside it. */
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
    // A stream can be read once only, so there is no second try.
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

export async function downloadBytes(
  transport: Transport,
  path: string,
  file: string,
  options: DownloadOptions,
): Promise<Uint8Array<ArrayBuffer>> {
  const stream = await downloadStream(transport, path, file, options);
  return collectBytes(stream, options.maxBytes ?? MAX_BUFFERED_BYTES);
}

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

/** How many entries to ask for at once, of `limit` in all; undefined leaves it to the service. */
function toFilesPage(limit: number | undefined): number | undefined {
  return limit === undefined ? undefined : Math.min(limit, MAX_PAGE_FILES);
}

function requireBytes(content: unknown): Uint8Array | Blob {
  if (content instanceof Uint8Array || content instanceof Blob) return content;
  throw new TypeError(
    'content must be a string, Uint8Array, Blob or ReadableStream; make the last of a Node stream with Readable.toWeb()',
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
