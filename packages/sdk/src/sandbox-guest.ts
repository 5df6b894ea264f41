import { execWithListeners, streamCommand, type CommandExit } from './streams/command-stream.ts';
import type { CallOptions } from './transport/client-options.ts';
import type { OutputChunk, OutputListeners } from './streams/collected-output.ts';
import { execCommand, type ExecOptions, type ExecResult } from './streams/exec.ts';
import {
  downloadBytes,
  downloadStream,
  listDirectory,
  uploadFile,
  type DownloadOptions,
  type FileContent,
  type FileEntry,
  type ListFilesOptions,
  type UploadOptions,
  type UploadResult,
} from './files.ts';
import type { PagedList } from './transport/paged-list.ts';
import {
  buildPortUrl,
  createPreview,
  listPreviews,
  revokePreview,
  type Preview,
  type PreviewInfo,
  type PreviewOptions,
} from './previews.ts';
import { openShell, type Shell, type ShellOptions } from './streams/shell.ts';
import { spawnCommand, type SpawnedCommand, type SpawnOptions } from './streams/spawned-command.ts';
import { openTerminal, type Terminal, type TerminalOptions } from './streams/terminal.ts';
import { createTicket, type Ticket, type TicketOptions } from './streams/tickets.ts';
import type { Transport } from './transport/transport.ts';

/** The calls of a sandbox that reach into it: commands, shells, terminals, files and ports. */
export abstract class SandboxGuest {
  readonly #transport: Transport;
  readonly #path: string;

  /** Made as part of a sandbox; `path` is its address below the base URL. */
  constructor(transport: Transport, path: string) {
    this.#transport = transport;
    this.#path = path;
  }

  /**
   * Runs a command with `/bin/sh -c` and waits for its end. An exit code other than zero does not throw. If you
   * abort, the command still runs to its end or timeout; with `onStdout` or `onStderr`, which are called with what the
   * command writes as it comes, it is killed.
   *
   * @example
   * const { exitCode, stdout } = await sandbox.exec('npm test', { cwd: '/workspace', timeout: 120 });
   *
   * @example
   * await sandbox.exec('make', { timeout: 600, onStdout: (text) => process.stdout.write(text) });
   */
  async exec(command: string, options: ExecOptions & OutputListeners = {}): Promise<ExecResult> {
    const { onStdout, onStderr, ...rest } = options;
    if (onStdout === undefined && onStderr === undefined)
      return execCommand(this.#transport, this.#path, command, rest);
    return execWithListeners(this.stream(command, rest), { onStdout, onStderr });
  }

  /**
   * Runs a command and yields what it writes as it comes; the return value says how it ended. Leaving the loop kills the
   * command, and one who is slow to ask for more makes it wait.
   *
   * @example
   * for await (const { type, data } of sandbox.stream('npm run build', { timeout: 600 })) process[type].write(data);
   */
  stream(command: string, options: ExecOptions = {}): AsyncGenerator<OutputChunk, CommandExit> {
    return streamCommand(this.#transport, this.#path, command, options);
  }

  /**
   * Starts a command with `/bin/sh -c` to which you write while it runs; its standard input is open until you end it.
   * Leaving it, an abort, and the end of `timeout` (30 s unless you say otherwise) kill the command.
   *
   * @example
   * await using command = await sandbox.spawn('sort');
   * await command.stdin.write('b\na\n');
   * await command.stdin.end();
   * for await (const { data } of command) process.stdout.write(data);
   */
  async spawn(command: string, options: SpawnOptions = {}): Promise<SpawnedCommand> {
    return spawnCommand(this.#transport, this.#path, command, options);
  }

  /**
   * Starts a bash that keeps its directory and variables from one command to the next. Leaving it, or an abort, ends it.
   *
   * @example
   * await using shell = await sandbox.shell();
   * await shell.run('cd /tmp && export NAME=x');
   * const { stdout } = await shell.run('echo $NAME in $PWD');
   */
  async shell(options: ShellOptions = {}): Promise<Shell> {
    return openShell(this.#transport, this.#path, options);
  }

  /**
   * Starts a program on a terminal, an interactive bash if none is named. Leaving it, or an abort, hangs up.
   *
   * @example
   * await using terminal = await sandbox.terminal({ cols: 120, rows: 40, command: 'top' });
   * for await (const bytes of terminal) process.stdout.write(bytes);
   */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return openTerminal(this.#transport, this.#path, options);
  }

  /**
   * Writes a file, whole or not at all. The file and the directories that are created on the way belong to the image's
   * USER, or to `user`. A stream is sent as it comes and is not tried again when the connection fails.
   *
   * @example
   * await sandbox.upload('/workspace/run.sh', '#!/bin/sh\necho hi\n', { mode: 0o755 });
   */
  async upload(path: string, content: FileContent, options: UploadOptions = {}): Promise<UploadResult> {
    return uploadFile(this.#transport, this.#path, path, { content, options });
  }

  /**
   * Reads a file as UTF-8 text; bytes that are not UTF-8 become U+FFFD.
   *
   * @example
   * const text = await sandbox.download('/etc/os-release');
   */
  async download(path: string, options: DownloadOptions = {}): Promise<string> {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await this.downloadBytes(path, options));
  }

  /**
   * Reads a file as it is.
   *
   * @example
   * const png = await sandbox.downloadBytes('/workspace/plot.png');
   */
  async downloadBytes(path: string, options: DownloadOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return downloadBytes(this.#transport, this.#path, path, options);
  }

  /**
   * Reads a file of any size. Read the stream to its end or cancel it, or the connection stays open.
   *
   * @example
   * const stream = await sandbox.downloadStream('/workspace/big.tar');
   * await stream.pipeTo(Writable.toWeb(createWriteStream('big.tar')));
   */
  async downloadStream(
    path: string,
    options: CallOptions = {},
  ): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    return downloadStream(this.#transport, this.#path, path, options);
  }

  /**
   * Lists a directory, sorted by name: await it for all entries, or iterate.
   *
   * @example
   * for await (const entry of sandbox.listFiles('/workspace')) console.log(entry.type, entry.path);
   */
  listFiles(path: string, options: ListFilesOptions = {}): PagedList<FileEntry> {
    return listDirectory(this.#transport, this.#path, path, options);
  }

  /**
   * The address of a port of the sandbox, without a call. `path` may hold a query. Requests need the API key as bearer;
   * for a browser make a `preview()`.
   *
   * @example
   * await fetch(sandbox.url(3000, '/health?full=1'), { headers: { authorization: `Bearer ${apiKey}` } });
   */
  url(port: number, path = ''): string {
    return buildPortUrl(this.#transport.baseUrl, this.#path, port, path);
  }

  /**
   * Makes a link with which a browser reaches a port, without a key, until it expires or is revoked.
   *
   * @example
   * const { url } = await sandbox.preview(3000, { expiresIn: 600 });
   */
  async preview(port: number, options: PreviewOptions = {}): Promise<Preview> {
    return createPreview(this.#transport, this.#path, port, options);
  }

  /**
   * Lists the previews, without their links.
   *
   * @example
   * for (const { id, port, expiresAt } of await sandbox.previews()) console.log(id, port, expiresAt);
   */
  async previews(options: CallOptions = {}): Promise<PreviewInfo[]> {
    return listPreviews(this.#transport, this.#path, options);
  }

  /**
   * Ends a preview: the next request is refused.
   *
   * @example
   * await sandbox.revokePreview(preview.id);
   */
  async revokePreview(id: string, options: CallOptions = {}): Promise<void> {
    await revokePreview(this.#transport, this.#path, id, options);
  }

  /**
   * Makes a ticket with which somebody without the key, such as a browser, opens one WebSocket of this sandbox, once.
   * `spawn`, `shell` and `terminal` get theirs themselves.
   *
   * @example
   * const { ticket } = await sandbox.createTicket({ expiresIn: 30 });
   * // in the browser: new WebSocket(`wss://…/v1/runs/${id}/terminal?ticket=${ticket}`)
   */
  async createTicket(options: TicketOptions = {}): Promise<Ticket> {
    return createTicket(this.#transport, this.#path, options);
  }
}
