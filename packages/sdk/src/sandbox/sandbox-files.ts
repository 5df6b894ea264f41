import type { CallOptions } from '../transport/client-options.ts';
import type { Transport } from '../transport/transport.ts';
import type { FileContent } from '../transport/upload.ts';
import {
  downloadArchive,
  uploadArchive,
  type DownloadArchiveOptions,
  type UnpackResult,
  type UploadArchiveOptions,
} from './file-archives.ts';
import {
  changeFile,
  removeFile,
  statFile,
  type FileInfo,
  type MakeDirectoryOptions,
  type MoveFileOptions,
  type RecursiveOptions,
} from './file-changes.ts';
import { watchFiles, type FileEvent, type WatchFilesOptions } from './file-events.ts';
import { createFileLink, type FileLink, type FileLinkOptions } from './file-links.ts';
import { formatMode } from './files.ts';

/**
 * The files of a sandbox, apart from the transfer of single files. Available as `sandbox.files`. A relative path starts
 * at the sandbox's working directory. All calls run as root in the sandbox. They reject with code `file_not_found`
 * for a missing file, and with `file_error` for what the sandbox's kernel refuses; the message ends with the errno.
 */
export class SandboxFiles {
  readonly #transport: Transport;
  readonly #path: string;

  /** Called by {@link Sandbox} only. */
  constructor(transport: Transport, sandboxPath: string) {
    this.#transport = transport;
    this.#path = `${sandboxPath}/files`;
  }

  /**
   * Describes a file or directory. A symbolic link is described itself; with a slash at the end of `path`, its target.
   *
   * @example
   * const { type, size, user } = await sandbox.files.stat('/workspace/out.csv');
   */
  async stat(path: string, options: CallOptions = {}): Promise<FileInfo> {
    return statFile(this.#transport, this.#path, path, options);
  }

  /**
   * Creates a directory and its missing parents. Rejects with code `already_exists` if the name is taken by a file, or
   * with `parents: false` by anything. Rejects with `TypeError` for an invalid `mode`.
   *
   * @example
   * await sandbox.files.mkdir('/workspace/cache', { mode: 0o750 });
   */
  async mkdir(path: string, options: MakeDirectoryOptions = {}): Promise<FileInfo> {
    const { mode, parents, user, signal } = options;
    const body = { path, mode: formatMode(mode), parents, user };
    return this.#change('mkdir', body, { idempotent: parents !== false, signal });
  }

  /**
   * Moves or renames a file or directory in one step. `to` is the new path itself. Rejects with code `already_exists` if
   * it is taken, unless `overwrite` is set. Nothing is copied: to another file system, use a command.
   *
   * @example
   * await sandbox.files.move('/workspace/report.tmp', '/workspace/report.csv', { overwrite: true });
   */
  async move(from: string, to: string, options: MoveFileOptions = {}): Promise<FileInfo> {
    const { overwrite, signal } = options;
    return this.#change('move', { from, to, overwrite }, { idempotent: false, signal });
  }

  /**
   * Removes a file, an empty directory, or, with `recursive`, a directory with everything in it. A symbolic link is
   * removed itself.
   *
   * @example
   * await sandbox.files.remove('/workspace/build', { recursive: true });
   */
  async remove(path: string, options: RecursiveOptions = {}): Promise<void> {
    return removeFile(this.#transport, this.#path, path, options);
  }

  /**
   * Changes permissions. `mode` is a number or octal text. Rejects with `TypeError` for an invalid number.
   *
   * @example
   * await sandbox.files.chmod('/workspace/run.sh', 0o755);
   */
  async chmod(path: string, mode: number | string, options: RecursiveOptions = {}): Promise<FileInfo> {
    const { recursive, signal } = options;
    return this.#change('chmod', { path, mode: formatMode(mode), recursive }, { idempotent: true, signal });
  }

  /**
   * Changes the owner: name, uid, `name:group` or `uid:gid`.
   *
   * @example
   * await sandbox.files.chown('/workspace', '1000:1000', { recursive: true });
   */
  async chown(path: string, user: string, options: RecursiveOptions = {}): Promise<FileInfo> {
    const { recursive, signal } = options;
    return this.#change('chown', { path, user, recursive }, { idempotent: true, signal });
  }

  /**
   * Reads a directory with everything in it as a tar, as a stream. Names are relative to the directory. Read the stream
   * to its end or cancel it; otherwise the connection stays open. The stream fails with {@link CoppiceError} if a file
   * cannot be read, or the connection breaks.
   *
   * @example
   * const stream = await sandbox.files.downloadArchive('/workspace/dist', { format: 'tar.gz' });
   * await stream.pipeTo(Writable.toWeb(createWriteStream('dist.tar.gz')));
   */
  async downloadArchive(
    path: string,
    options: DownloadArchiveOptions = {},
  ): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    return downloadArchive(this.#transport, this.#path, path, options);
  }

  /**
   * Unpacks a tar into a directory, which is created if it is missing. Files of the same name are replaced. A stream is
   * sent as it is read and is never retried. Rejects with code `invalid_request` for an archive that is not whole or
   * that leads out of the directory; the message says how many entries were written before.
   *
   * @example
   * await sandbox.files.uploadArchive('/workspace', await readFile('site.tar.gz'), { format: 'tar.gz' });
   */
  async uploadArchive(
    path: string,
    content: FileContent,
    options: UploadArchiveOptions = {},
  ): Promise<UnpackResult> {
    return uploadArchive(this.#transport, this.#path, path, { content, options });
  }

  /**
   * Creates a URL that reads or writes one file without the API key. It ends when it expires, when the API key is
   * revoked, and with the sandbox. Throws `TypeError` for an unknown option.
   *
   * @example
   * const { url } = await sandbox.files.createLink('/workspace/out.csv', { expiresIn: 600 });
   */
  async createLink(path: string, options: FileLinkOptions = {}): Promise<FileLink> {
    return createFileLink(this.#transport, this.#path, path, options);
  }

  /**
   * Watches a directory. Resolves when the watch has begun; iterate over the result for the changes from then on. It
   * returns when the directory is gone, and throws {@link CoppiceError} with code `invalid_state` when the sandbox ends
   * or hibernates. Leaving the loop, or an abort, ends the watch.
   *
   * @example
   * const changes = await sandbox.files.watch('/workspace', { recursive: true });
   * for await (const { type, path } of changes) {
   *   console.log(type, path);
   *   if (path === '/workspace/done') break;
   * }
   */
  async watch(
    path: string,
    options: WatchFilesOptions = {},
  ): Promise<AsyncGenerator<FileEvent, void, undefined>> {
    return watchFiles(this.#transport, this.#path, path, options);
  }

  #change(
    route: 'mkdir' | 'move' | 'chmod' | 'chown',
    body: Record<string, unknown>,
    call: { idempotent: boolean; signal: AbortSignal | undefined },
  ): Promise<FileInfo> {
    return changeFile(this.#transport, this.#path, { route, body, ...call });
  }
}
