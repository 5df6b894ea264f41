import { fetchAuditHead, readAudit, type AuditOptions } from '../audit/audit.ts';
import type { AuditEntry, AuditHead } from '../audit/audit-entry.ts';
import { resolveClientOptions, type CallOptions, type ClientOptions } from '../transport/client-options.ts';
import { CoppiceError, nullIfMissing } from '../transport/errors.ts';
import type { CreateCallOptions } from '../transport/post-once.ts';
import { fetchTree, ForkError, forkSandbox, type ForkOptions, type SandboxTree } from './forks.ts';
import { getOrCreateSandbox, type GetOrCreateOptions } from './get-or-create.ts';
import { describeObject, INSPECT, type InspectArguments } from '../transport/inspect.ts';
import {
  changeState,
  type ResumeOptions,
  createSandbox,
  destroySandbox,
  fetchSandbox,
  rollBack,
  sandboxPath,
  type CreateOptions,
} from './lifecycle.ts';
import { fetchMetrics, type MetricsOptions, type SandboxMetrics } from './metrics.ts';
import type { SandboxEgress } from './sandbox-egress.ts';
import type { SandboxGuest } from './sandbox-guest.ts';
import type { SandboxLife } from './sandbox-life.ts';
import { SandboxCommands } from '../commands/sandbox-commands.ts';
import {
  execWithListeners,
  streamCommand,
  streamCommandBytes,
  type CommandExit,
} from '../streams/command-stream.ts';
import type { FileContent } from '../transport/upload.ts';
import type { OutputBytes, OutputChunk, OutputListeners } from '../streams/collected-output.ts';
import { execCommand, type ExecOptions, type ExecResult } from '../streams/exec.ts';
import {
  downloadBytes,
  downloadStream,
  listDirectory,
  uploadFile,
  type DownloadOptions,
  type DownloadStreamOptions,
  type FileEntry,
  type ListFilesOptions,
  type UploadOptions,
  type UploadResult,
} from './files.ts';
import type { PagedList } from '../transport/paged-list.ts';
import {
  buildPortUrl,
  createPreview,
  listPreviews,
  revokePreview,
  type Preview,
  type PreviewInfo,
  type PreviewOptions,
} from './previews.ts';
import { SandboxFiles } from './sandbox-files.ts';
import { openShell, type Shell, type ShellOptions } from '../streams/shell.ts';
import { spawnCommand, type SpawnedCommand, type SpawnOptions } from '../streams/spawned-command.ts';
import { openSsh, readSshHostKey, type SshConnection, type SshOptions } from '../streams/ssh.ts';
import { openTerminal, type Terminal, type TerminalOptions } from '../streams/terminal.ts';
import { createTicket, type Ticket, type TicketOptions } from '../streams/tickets.ts';
import {
  fetchCredentials,
  fetchNetwork,
  putCredentials,
  putNetwork,
  type CredentialInfo,
  type CredentialOptions,
  type NetworkInfo,
  type NetworkRules,
} from '../egress.ts';
import { updateSandbox, type SandboxSettings } from './settings.ts';
import { hasEnded, type DestroyResult, type SandboxInfo, type SandboxStatus } from './sandbox-record.ts';
import {
  restoreSandbox,
  takeSnapshot,
  type RestoreOptions,
  type SnapshotInfo,
  type SnapshotOptions,
} from './snapshots.ts';
import { Transport } from '../transport/transport.ts';

/**
 * One microVM sandbox. The object holds the record that the service sent last; `refresh()` fetches it again.
 *
 * Calls reject with {@link CoppiceError} when they fail, with `TypeError` when an argument is invalid, and with the
 * reason of the caller's signal when they are aborted. {@link SandboxLife}, {@link SandboxGuest} and {@link
 * SandboxEgress} describe them.
 *
 * @example
 * await using sandbox = await Sandbox.create({ image: 'node:22-slim' });
 * const { stdout } = await sandbox.exec('node --version');
 */
export class Sandbox implements SandboxLife, SandboxGuest, SandboxEgress, AsyncDisposable {
  readonly commands: SandboxCommands;
  readonly files: SandboxFiles;
  readonly #transport: Transport;
  readonly #path: string;
  #record: SandboxInfo;

  /** Called by the client only: use `Sandbox.create()`, `Sandbox.get()` or {@link Coppice}. */
  constructor(transport: Transport, record: SandboxInfo) {
    this.#transport = transport;
    this.#path = sandboxPath(record.id);
    this.commands = new SandboxCommands(transport, this.#path);
    this.files = new SandboxFiles(transport, this.#path);
    this.#record = record;
  }

  /**
   * Creates a sandbox with a new client, which the environment or the second argument configures. Otherwise the same as
   * `client.sandboxes.create()`. Rejects with `TypeError` when there is no API key.
   *
   * @example
   * const sandbox = await Sandbox.create({ memMiB: 2048 }, { baseUrl: 'http://127.0.0.1:8080' });
   */
  static async create(
    options: CreateOptions = {},
    call: CreateCallOptions & ClientOptions = {},
  ): Promise<Sandbox> {
    const transport = new Transport(resolveClientOptions(call));
    return new Sandbox(transport, await createSandbox(transport, options, call));
  }

  /**
   * Finds the sandbox with a name, or creates it, with a new client. Otherwise the same as
   * `client.sandboxes.getOrCreate()`. Rejects with `TypeError` when there is no API key.
   *
   * @example
   * const sandbox = await Sandbox.getOrCreate({ name: 'build-cache', autoHibernate: true });
   */
  static async getOrCreate(
    options: GetOrCreateOptions,
    call: CallOptions & ClientOptions = {},
  ): Promise<Sandbox> {
    const transport = new Transport(resolveClientOptions(call));
    return new Sandbox(transport, await getOrCreateSandbox(transport, options, call));
  }

  /**
   * Creates a sandbox from a snapshot with a new client. Otherwise the same as `client.sandboxes.restore()`. Rejects
   * with `TypeError` when there is no API key.
   *
   * @example
   * const sandbox = await Sandbox.restore('snap0123456789abcdef0123', { timeout: 600 });
   */
  static async restore(
    snapshotId: string,
    options: RestoreOptions = {},
    call: CreateCallOptions & ClientOptions = {},
  ): Promise<Sandbox> {
    const transport = new Transport(resolveClientOptions(call));
    return new Sandbox(transport, await restoreSandbox(transport, snapshotId, options, call));
  }

  /**
   * Finds a sandbox by its id with a new client. Resolves with null when there is none. Rejects with `TypeError` when
   * there is no API key.
   *
   * @example
   * const sandbox = await Sandbox.get('run0123456789abcdef0123');
   */
  static async get(id: string, call: CallOptions & ClientOptions = {}): Promise<Sandbox | null> {
    return findSandbox(new Transport(resolveClientOptions(call)), id, call);
  }

  /** Id of the sandbox, for example `run0123456789abcdef0123`. */
  get id(): string {
    return this.#record.id;
  }

  /** Name of the sandbox in the record that the service sent last. Null without one. */
  get name(): string | null {
    return this.#record.name;
  }

  /** State of the sandbox in the record that the service sent last. */
  get status(): SandboxStatus {
    return this.#record.status;
  }

  /** The record that the service sent last. */
  get record(): Readonly<SandboxInfo> {
    return this.#record;
  }

  async setTimeout(seconds: number, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.update({ timeout: seconds }, options);
  }

  async update(settings: SandboxSettings, options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await updateSandbox(this.#transport, this.#path, settings, options);
    return this.#record;
  }

  async fork(count?: 1, call?: ForkOptions): Promise<[Sandbox]>;
  async fork(count: number, call?: ForkOptions): Promise<Sandbox[]>;
  async fork(count = 1, call: ForkOptions = {}): Promise<Sandbox[]> {
    const { records, errors } = await forkSandbox(this.#transport, this.#path, count, call);
    const children = records.map((record) => new Sandbox(this.#transport, record));
    if (errors.length > 0) throw new ForkError(children, errors);
    return children;
  }

  async snapshot(options: SnapshotOptions = {}): Promise<SnapshotInfo> {
    return takeSnapshot(this.#transport, this.#path, options);
  }

  async rollback(snapshotId: string, options: CreateCallOptions = {}): Promise<SandboxInfo> {
    this.#record = await rollBack(this.#transport, this.#path, snapshotId, options);
    return this.#record;
  }

  async hibernate(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#change('hibernate', options);
  }

  async resume(options: ResumeOptions = {}): Promise<SandboxInfo> {
    return this.#change('resume', options);
  }

  async tree(options: CallOptions = {}): Promise<SandboxTree> {
    return fetchTree(this.#transport, this.#path, options);
  }

  async metrics(options: MetricsOptions = {}): Promise<SandboxMetrics> {
    return fetchMetrics(this.#transport, this.#path, options);
  }

  audit(options: AuditOptions = {}): AsyncGenerator<AuditEntry, void, undefined> {
    return readAudit(this.#transport, this.#path, options);
  }

  async auditHead(options: CallOptions = {}): Promise<AuditHead> {
    return fetchAuditHead(this.#transport, this.#path, options);
  }

  async destroy(options: CallOptions = {}): Promise<DestroyResult> {
    const result = await destroySandbox(this.#transport, this.#path, options);
    this.#record = { ...this.#record, status: result.status };
    return result;
  }

  async info(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await fetchSandbox(this.#transport, this.#path, options);
    return this.#record;
  }

  /**
   * Fetches the current record, as `info()` does, and resolves with this sandbox.
   *
   * @example
   * if ((await sandbox.refresh()).status === 'failed') console.error(sandbox.record.statusReason);
   */
  async refresh(options: CallOptions = {}): Promise<this> {
    await this.info(options);
    return this;
  }

  async exec(command: string, options: ExecOptions & OutputListeners = {}): Promise<ExecResult> {
    const { onStdout, onStderr, ...rest } = options;
    if (onStdout === undefined && onStderr === undefined)
      return execCommand(this.#transport, this.#path, command, rest);
    return execWithListeners(this.stream(command, rest), { onStdout, onStderr });
  }

  stream(command: string, options: ExecOptions = {}): AsyncGenerator<OutputChunk, CommandExit> {
    return streamCommand(this.#transport, this.#path, command, options);
  }

  streamBytes(command: string, options: ExecOptions = {}): AsyncGenerator<OutputBytes, CommandExit> {
    return streamCommandBytes(this.#transport, this.#path, command, options);
  }

  async spawn(command: string, options: SpawnOptions = {}): Promise<SpawnedCommand> {
    return spawnCommand(this.#transport, this.#path, command, options);
  }

  async shell(options: ShellOptions = {}): Promise<Shell> {
    return openShell(this.#transport, this.#path, options);
  }

  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return openTerminal(this.#transport, this.#path, options);
  }

  async ssh(options: SshOptions = {}): Promise<SshConnection> {
    return openSsh(this.#transport, this.#path, options);
  }

  async sshHostKey(options: CallOptions = {}): Promise<string> {
    return readSshHostKey(this.#transport, this.#path, options);
  }

  async upload(path: string, content: FileContent, options: UploadOptions = {}): Promise<UploadResult> {
    return uploadFile(this.#transport, this.#path, path, { content, options });
  }

  async download(path: string, options: DownloadOptions = {}): Promise<string> {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await this.downloadBytes(path, options));
  }

  async downloadBytes(path: string, options: DownloadOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return downloadBytes(this.#transport, this.#path, path, options);
  }

  async downloadStream(
    path: string,
    options: DownloadStreamOptions = {},
  ): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    return downloadStream(this.#transport, this.#path, path, options);
  }

  listFiles(path: string, options: ListFilesOptions = {}): PagedList<FileEntry> {
    return listDirectory(this.#transport, this.#path, path, options);
  }

  url(port: number, path = ''): string {
    return buildPortUrl(this.#transport.baseUrl, this.#path, port, path);
  }

  async preview(port: number, options: PreviewOptions = {}): Promise<Preview> {
    return createPreview(this.#transport, this.#path, port, options);
  }

  async previews(options: CallOptions = {}): Promise<PreviewInfo[]> {
    return listPreviews(this.#transport, this.#path, options);
  }

  async revokePreview(id: string, options: CallOptions = {}): Promise<void> {
    await revokePreview(this.#transport, this.#path, id, options);
  }

  async createTicket(options: TicketOptions = {}): Promise<Ticket> {
    return createTicket(this.#transport, this.#path, options);
  }

  async network(options: CallOptions = {}): Promise<NetworkInfo> {
    return fetchNetwork(this.#transport, this.#path, options);
  }

  async setNetwork(network: NetworkRules | string, options: CallOptions = {}): Promise<NetworkInfo> {
    return putNetwork(this.#transport, { path: this.#path, network }, options);
  }

  async credentials(options: CallOptions = {}): Promise<CredentialInfo[]> {
    return fetchCredentials(this.#transport, this.#path, options);
  }

  async setCredentials(credentials: CredentialOptions, options: CallOptions = {}): Promise<CredentialInfo[]> {
    return putCredentials(this.#transport, { path: this.#path, options: credentials }, options);
  }

  /** Returns the record, so that `JSON.stringify(sandbox)` and structured logs show it. */
  toJSON(): SandboxInfo {
    return this.#record;
  }

  [INSPECT](...print: InspectArguments): string {
    const { id, name, status, image, vcpus, memMiB, createdAt, expiresAt } = this.#record;
    const shown = { id, name, status, image, vcpus, memMiB, createdAt, expiresAt };
    return describeObject('Sandbox', shown, print);
  }

  /** Destroys the sandbox at the end of an `await using` block. A sandbox that has already ended is not an error. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (hasEnded(this.#record)) return;
    try {
      await this.destroy();
    } catch (error) {
      if (!(await this.#isGone(error))) throw error;
    }
  }

  async #change(change: 'hibernate' | 'resume', call: ResumeOptions): Promise<SandboxInfo> {
    this.#record = await changeState(this.#transport, this.#path, change, call);
    return this.#record;
  }

  /**
   * Returns true when the sandbox has ended. A 409 can also mean that another operation runs, so the record decides.
   */
  async #isGone(error: unknown): Promise<boolean> {
    if (!(error instanceof CoppiceError)) return false;
    if (error.status === 404) return true;
    return error.status === 409 && hasEnded(await this.info());
  }
}

/** Finds a sandbox by its id. Resolves with null when the service answers 404. */
export async function findSandbox(
  transport: Transport,
  id: string,
  options: CallOptions,
): Promise<Sandbox | null> {
  const info = await nullIfMissing(fetchSandbox(transport, sandboxPath(id), options));
  return info && new Sandbox(transport, info);
}
