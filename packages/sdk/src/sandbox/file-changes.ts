import type { CallOptions } from '../transport/client-options.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { buildQuery, readNumber, readObject, readOptionalString } from '../transport/wire.ts';
import { parseFileEntry, type FileEntry } from './files.ts';

/** A file or directory with its owner. */
export interface FileInfo extends FileEntry {
  uid: number;
  gid: number;
  /** Name of the owner in the sandbox's `/etc/passwd`. Null if it has none. */
  user: string | null;
  /** Name of the group in the sandbox's `/etc/group`. Null if it has none. */
  group: string | null;
}

/** Options of `sandbox.files.mkdir()`. */
export interface MakeDirectoryOptions extends CallOptions {
  /** Permissions, as a number (`0o750`) or as octal text (`'750'`). Default 755. */
  mode?: number | string | undefined;
  /** Creates missing parents, and accepts an existing directory, which stays as it is. Default true. */
  parents?: boolean | undefined;
  /** Owner of all created directories: name, uid, `name:group` or `uid:gid`. Default: the image's USER. */
  user?: string | undefined;
}

/** Options of `sandbox.files.move()`. */
export interface MoveFileOptions extends CallOptions {
  /** Replaces a file, or an empty directory by a directory. Default false. */
  overwrite?: boolean | undefined;
}

/** Options of the calls that can include everything below a directory. */
export interface RecursiveOptions extends CallOptions {
  /** Also does it for everything below a directory. Default false. */
  recursive?: boolean | undefined;
}

/** A change that the service answers with the entry. `path` is that of the files below the base URL. */
interface FileChange {
  route: 'mkdir' | 'move' | 'chmod' | 'chown';
  body: Record<string, unknown>;
  idempotent: boolean;
  signal: AbortSignal | undefined;
}

/** Describes a file or directory. In all functions here, `path` is that of the files below the base URL. */
export async function statFile(
  transport: Transport,
  path: string,
  file: string,
  { signal }: CallOptions,
): Promise<FileInfo> {
  const query = buildQuery({ path: file });
  const request: CallRequest = { method: 'GET', path: `${path}/stat`, query, idempotent: true, signal };
  return (await transport.callJson(request, parseFileInfo)).value;
}

/** Sends a change. `body` may have undefined fields, which are left out. */
export async function changeFile(
  transport: Transport,
  path: string,
  { route, body, idempotent, signal }: FileChange,
): Promise<FileInfo> {
  const request: CallRequest = {
    method: 'POST',
    path: `${path}/${route}`,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    idempotent,
    signal,
  };
  return (await transport.callJson(request, parseFileInfo)).value;
}

/** Removes a file or directory. */
export async function removeFile(
  transport: Transport,
  path: string,
  file: string,
  { recursive, signal }: RecursiveOptions,
): Promise<void> {
  const query = buildQuery({
    path: file,
    recursive: recursive === undefined ? undefined : String(recursive),
  });
  await transport.callEmpty({ method: 'DELETE', path, query, idempotent: false, signal });
}

function parseFileInfo(value: unknown): FileInfo {
  const info = readObject(value, 'the file');
  return {
    ...parseFileEntry(value),
    uid: readNumber(info, 'uid'),
    gid: readNumber(info, 'gid'),
    user: readOptionalString(info, 'user'),
    group: readOptionalString(info, 'group'),
  };
}
