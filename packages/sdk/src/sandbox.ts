import { resolveClientOptions, type CallOptions, type ClientOptions } from './client-options.ts';
import { CoppiceError } from './errors.ts';
import {
  downloadBytes,
  downloadStream,
  listDirectory,
  uploadFile,
  type DownloadOptions,
  type FileContent,
  type FileEntry,
  type UploadOptions,
  type UploadResult,
} from './files.ts';
import {
  createSandbox,
  destroySandbox,
  fetchSandbox,
  sandboxPath,
  setIdleTimeout,
  type CreateCallOptions,
  type CreateOptions,
} from './lifecycle.ts';
import { SandboxConnections } from './sandbox-connections.ts';
import type { DestroyResult, SandboxInfo, SandboxStatus } from './sandbox-record.ts';
import { Transport } from './transport.ts';

/**
 * A microVM of yours. It keeps the service's record as it was last seen; `refresh()` brings it up to date.
 *
 * @example
 * await using sandbox = await Sandbox.create({ image: 'node:22-slim' });
 * const { stdout } = await sandbox.exec('node --version');
 */
export class Sandbox extends SandboxConnections implements AsyncDisposable {
  readonly #transport: Transport;
  readonly #path: string;
  #record: SandboxInfo;

  /** Made by the client: use `Sandbox.create()`, `Sandbox.get()` or {@link Coppice}. */
  constructor(transport: Transport, record: SandboxInfo) {
    super(transport, sandboxPath(record.id));
    this.#transport = transport;
    this.#path = sandboxPath(record.id);
    this.#record = record;
  }

  /**
   * Creates a sandbox with a client of its own, configured by the environment or by the second argument.
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
   * Finds a sandbox with a client of its own; null when there is none with this id.
   *
   * @example
   * const sandbox = await Sandbox.get('run0123456789abcdef0123');
   */
  static async get(id: string, call: CallOptions & ClientOptions = {}): Promise<Sandbox | null> {
    return findSandbox(new Transport(resolveClientOptions(call)), id, call);
  }

  get id(): string {
    return this.#record.id;
  }

  /** As last seen. */
  get status(): SandboxStatus {
    return this.#record.status;
  }

  /** The whole record as last seen. */
  get record(): Readonly<SandboxInfo> {
    return this.#record;
  }

  /**
   * Writes a file, whole or not at all; directories on the way are made. A stream is sent as it comes and is not
   * tried again when the connection fails.
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
   * Lists a directory, sorted by name.
   *
   * @example
   * for (const entry of await sandbox.listFiles('/workspace')) console.log(entry.type, entry.path);
   */
  async listFiles(path: string, options: CallOptions = {}): Promise<FileEntry[]> {
    return listDirectory(this.#transport, this.#path, path, options);
  }

  /**
   * Sets the idle time after which the sandbox destroys itself, and restarts the timer. 0 turns it off.
   *
   * @example
   * await sandbox.setTimeout(3600);
   */
  async setTimeout(seconds: number, options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await setIdleTimeout(this.#transport, this.#path, seconds, options);
    return this.#record;
  }

  /**
   * Destroys the sandbox with all that is in it. One that is destroyed already rejects with `invalid_state`.
   *
   * @example
   * const { costCents, cpuMs } = await sandbox.destroy();
   */
  async destroy(options: CallOptions = {}): Promise<DestroyResult> {
    const result = await destroySandbox(this.#transport, this.#path, options);
    this.#record = { ...this.#record, status: result.status };
    return result;
  }

  /**
   * Asks the service for the record of now. A destroyed sandbox still has one.
   *
   * @example
   * const { status, expiresAt } = await sandbox.info();
   */
  async info(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#record = await fetchSandbox(this.#transport, this.#path, options);
    return this.#record;
  }

  /**
   * Brings `status` and `record` up to date.
   *
   * @example
   * if ((await sandbox.refresh()).status === 'failed') console.error(sandbox.record.statusReason);
   */
  async refresh(options: CallOptions = {}): Promise<this> {
    await this.info(options);
    return this;
  }

  /** Destroys the sandbox at the end of an `await using` block; one that has ended already is no error. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (hasEnded(this.#record)) return;
    try {
      await this.destroy();
    } catch (error) {
      if (!(await this.#isGone(error))) throw error;
    }
  }

  /** A 409 may also mean that another operation is under way, so the record decides. */
  async #isGone(error: unknown): Promise<boolean> {
    if (!(error instanceof CoppiceError)) return false;
    if (error.status === 404) return true;
    return error.status === 409 && hasEnded(await this.info());
  }
}

/** Null when the service answers 404. */
export async function findSandbox(
  transport: Transport,
  id: string,
  options: CallOptions,
): Promise<Sandbox | null> {
  try {
    const info = await fetchSandbox(transport, sandboxPath(id), options);
    return new Sandbox(transport, info);
  } catch (error) {
    if (error instanceof CoppiceError && error.status === 404) return null;
    throw error;
  }
}

function hasEnded(record: SandboxInfo): boolean {
  return record.status === 'destroyed' || record.status === 'failed';
}
