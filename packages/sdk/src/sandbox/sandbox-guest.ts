import type { SandboxCommands } from '../commands/sandbox-commands.ts';
import type { CommandExit } from '../streams/command-stream.ts';
import type { FileContent } from '../transport/upload.ts';
import type { CallOptions } from '../transport/client-options.ts';
import type { OutputBytes, OutputChunk, OutputListeners } from '../streams/collected-output.ts';
import type { ExecOptions, ExecResult } from '../streams/exec.ts';
import type {
  DownloadOptions,
  DownloadStreamOptions,
  FileEntry,
  ListFilesOptions,
  UploadOptions,
  UploadResult,
} from './files.ts';
import type { PagedList } from '../transport/paged-list.ts';
import type { Preview, PreviewInfo, PreviewOptions } from './previews.ts';
import type { SandboxFiles } from './sandbox-files.ts';
import type { Shell, ShellOptions } from '../streams/shell.ts';
import type { SpawnedCommand, SpawnOptions } from '../streams/spawned-command.ts';
import type { SshConnection, SshOptions } from '../streams/ssh.ts';
import type { Terminal, TerminalOptions } from '../streams/terminal.ts';
import type { Ticket, TicketOptions } from '../streams/tickets.ts';

/**
 * The part of {@link Sandbox} that acts inside the guest: commands, shells, terminals, files and ports. Calls reject
 * with {@link CoppiceError}, for example with code `invalid_state` when the sandbox is not running, or
 * `guest_unreachable` when its agent does not answer.
 */
export interface SandboxGuest {
  /** Its commands that outlive their client. */
  readonly commands: SandboxCommands;
  /** Its files, apart from uploads, downloads and lists, which are methods of the sandbox. */
  readonly files: SandboxFiles;

  /**
   * Runs a command with `/bin/sh -c` and waits for its end. An exit code other than zero is a result, not an error.
   * With `onStdout` or `onStderr`, each is called with output as it arrives. Aborting such a call kills the command;
   * without these listeners an aborted command runs to its end or timeout. The call is never retried.
   *
   * @example
   * const { exitCode, stdout } = await sandbox.exec('npm test', { cwd: '/workspace', timeout: 120 });
   *
   * @example
   * await sandbox.exec('make', { timeout: 600, onStdout: (text) => process.stdout.write(text) });
   */
  exec(command: string, options?: ExecOptions & OutputListeners): Promise<ExecResult>;

  /**
   * Runs a command with `/bin/sh -c` and yields its output as it arrives. The return value of the generator says how
   * the command ended. Leaving the loop kills the command. A slow reader makes the command wait.
   *
   * @example
   * for await (const { type, data } of sandbox.stream('npm run build', { timeout: 600 })) process[type].write(data);
   */
  stream(command: string, options?: ExecOptions): AsyncGenerator<OutputChunk, CommandExit>;

  /**
   * Does the same as `stream()`, and yields the output as the bytes that the command wrote: for output that is not UTF-8.
   *
   * @example
   * for await (const { type, data } of sandbox.streamBytes('tar -cz /workspace'))
   *   if (type === 'stdout') process.stdout.write(data);
   */
  streamBytes(command: string, options?: ExecOptions): AsyncGenerator<OutputBytes, CommandExit>;

  /**
   * Starts a command with `/bin/sh -c` that reads input while it runs. Its standard input stays open until
   * `stdin.end()`. The command is killed by `close()`, by an abort, and when `timeout` elapses (default 30 s). Rejects
   * with `TypeError` for the option `stdin`.
   *
   * @example
   * await using command = await sandbox.spawn('sort');
   * await command.stdin.write('b\na\n');
   * await command.stdin.end();
   * for await (const { data } of command) process.stdout.write(data);
   */
  spawn(command: string, options?: SpawnOptions): Promise<SpawnedCommand>;

  /**
   * Starts a bash (`sh` if the image has no bash) that keeps its directory and variables from one command to the next.
   * `close()` or an abort ends it.
   *
   * @example
   * await using shell = await sandbox.shell();
   * await shell.run('cd /tmp && export NAME=x');
   * const { stdout } = await shell.run('echo $NAME in $PWD');
   */
  shell(options?: ShellOptions): Promise<Shell>;

  /**
   * Starts a program on a terminal (PTY), by default an interactive bash. `close()` or an abort hangs up, which ends
   * the program. Rejects with `TypeError` for `cols` or `rows` outside 1–1000.
   *
   * @example
   * await using terminal = await sandbox.terminal({ cols: 120, rows: 40, command: 'ls -l --color' });
   * for await (const bytes of terminal) process.stdout.write(bytes);
   */
  terminal(options?: TerminalOptions): Promise<Terminal>;

  /**
   * Opens a connection to the SSH server of the sandbox, for a program that speaks SSH: `coppice ssh-proxy` connects it
   * with the standard input and output of OpenSSH. No port is open for it, and it needs no other key than that of the
   * API. Rejects with code `agent_outdated` for a sandbox of an older version of the service.
   *
   * @example
   * await using connection = await sandbox.ssh();
   * for await (const bytes of connection) {
   *   console.log(new TextDecoder().decode(bytes)); // SSH-2.0-Coppice, then the server waits for a client
   *   break;
   * }
   */
  ssh(options?: SshOptions): Promise<SshConnection>;

  /**
   * Reads the public host key of the sandbox's SSH server, as in `known_hosts` after the name. Copies of a sandbox have
   * their own.
   *
   * @example
   * const line = `${sandbox.id} ${await sandbox.sshHostKey()}`;
   */
  sshHostKey(options?: CallOptions): Promise<string>;

  /**
   * Writes a file: it appears complete or not at all. Missing parent directories are created. They and the file belong
   * to `user`, by default the image's USER. A stream is sent as it is read and is never retried. Rejects with the error
   * of the stream if reading it fails, and with `TypeError` for content of another type or an invalid `mode`.
   *
   * @example
   * await sandbox.upload('/workspace/run.sh', '#!/bin/sh\necho hi\n', { mode: 0o755 });
   */
  upload(path: string, content: FileContent, options?: UploadOptions): Promise<UploadResult>;

  /**
   * Reads a file as UTF-8 text. Bytes that are not UTF-8 become U+FFFD. Rejects with code `file_not_found`, or
   * `response_too_large` for a file over `maxBytes`.
   *
   * @example
   * const text = await sandbox.download('/etc/os-release');
   */
  download(path: string, options?: DownloadOptions): Promise<string>;

  /**
   * Reads a file as bytes. Rejects with code `file_not_found`, or `response_too_large` for a file over `maxBytes`.
   *
   * @example
   * const png = await sandbox.downloadBytes('/workspace/plot.png');
   */
  downloadBytes(path: string, options?: DownloadOptions): Promise<Uint8Array<ArrayBuffer>>;

  /**
   * Reads a file of any size as a stream. Read the stream to its end or cancel it; otherwise the connection stays open.
   * Rejects with code `file_not_found`. The stream itself fails with {@link CoppiceError} if the connection breaks.
   *
   * @example
   * const stream = await sandbox.downloadStream('/workspace/big.tar');
   * await stream.pipeTo(Writable.toWeb(createWriteStream('big.tar')));
   *
   * @example
   * const part = await sandbox.downloadStream('/workspace/big.tar', { offset: 1_000_000, length: 65_536 });
   */
  downloadStream(
    path: string,
    options?: DownloadStreamOptions,
  ): Promise<ReadableStream<Uint8Array<ArrayBuffer>>>;

  /**
   * Lists a directory, sorted by name. Await the list for all entries, or iterate over it. Throws `TypeError` for an
   * invalid `limit`; the list rejects with code `file_not_found` if there is no such directory.
   *
   * @example
   * for await (const entry of sandbox.listFiles('/workspace')) console.log(entry.type, entry.path);
   */
  listFiles(path: string, options?: ListFilesOptions): PagedList<FileEntry>;

  /**
   * Returns the URL of a port of the sandbox. It makes no request. `path` may include a query. Requests to the URL need
   * the API key as bearer token; for a browser use `preview()`. Throws `TypeError` unless `port` is an integer from 1
   * to 65 535.
   *
   * @example
   * await fetch(sandbox.url(3000, '/health?full=1'), { headers: { authorization: `Bearer ${apiKey}` } });
   */
  url(port: number, path?: string): string;

  /**
   * Creates a link that opens a port in a browser without the API key, until it expires or is revoked. Rejects with
   * `TypeError` unless `port` is an integer from 1 to 65 535.
   *
   * @example
   * const { url } = await sandbox.preview(3000, { expiresIn: 600 });
   */
  preview(port: number, options?: PreviewOptions): Promise<Preview>;

  /**
   * Lists the previews of the sandbox. The list does not include their links.
   *
   * @example
   * for (const { id, port, expiresAt } of await sandbox.previews()) console.log(id, port, expiresAt);
   */
  previews(options?: CallOptions): Promise<PreviewInfo[]>;

  /**
   * Revokes a preview: the service refuses the next request with its link. Rejects with code `not_found` when there is
   * no such preview.
   *
   * @example
   * await sandbox.revokePreview(preview.id);
   */
  revokePreview(id: string, options?: CallOptions): Promise<void>;

  /**
   * Creates a ticket that opens one WebSocket of this sandbox, once. A client without the API key, such as a browser,
   * uses it. `spawn`, `shell` and `terminal` fetch their own tickets.
   *
   * @example
   * const { ticket } = await sandbox.createTicket({ expiresIn: 30 });
   * // in the browser: new WebSocket(`wss://…/v1/runs/${id}/terminal?ticket=${ticket}`)
   */
  createTicket(options?: TicketOptions): Promise<Ticket>;
}
