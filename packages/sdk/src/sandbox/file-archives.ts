import type { CallOptions } from '../transport/client-options.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { sendContent, type FileContent } from '../transport/upload.ts';
import { buildQuery, readNumber, readObject, readString } from '../transport/wire.ts';

/** Options of `sandbox.files.downloadArchive()`. */
export interface DownloadArchiveOptions extends CallOptions {
  /** Format of the archive. Default `tar`. */
  format?: 'tar' | 'tar.gz' | undefined;
}

/** Options of `sandbox.files.uploadArchive()`. */
export interface UploadArchiveOptions extends DownloadArchiveOptions {
  /** Owner of all that is written: name, uid, `name:group` or `uid:gid`. Default: the image's USER. */
  user?: string | undefined;
}

/** Result of an archive that was unpacked. */
export interface UnpackResult {
  /** Absolute path of the directory in the sandbox. */
  path: string;
  /** Number of files, directories and links. */
  entries: number;
  /** Size of all files in bytes. */
  size: number;
}

/** Reads a directory as an archive. In both functions here, `path` is that of the files below the base URL. */
export async function downloadArchive(
  transport: Transport,
  path: string,
  directory: string,
  { format, signal }: DownloadArchiveOptions,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  return transport.callStream({
    method: 'GET',
    path: `${path}/archive`,
    query: buildQuery({ path: directory, format }),
    idempotent: true,
    signal,
  });
}

/** Unpacks an archive into a directory. Throws `TypeError` for content of another type. */
export async function uploadArchive(
  transport: Transport,
  path: string,
  directory: string,
  { content, options }: { content: FileContent; options: UploadArchiveOptions },
): Promise<UnpackResult> {
  const { format, user, signal } = options;
  const request: CallRequest = {
    method: 'PUT',
    path: `${path}/archive`,
    query: buildQuery({ path: directory, format, user }),
    idempotent: true,
    signal,
  };
  return sendContent(transport, request, { content, parse: parseUnpackResult });
}

function parseUnpackResult(value: unknown): UnpackResult {
  const result = readObject(value, 'the unpacked archive');
  return {
    path: readString(result, 'path'),
    entries: readNumber(result, 'entries'),
    size: readNumber(result, 'size'),
  };
}
