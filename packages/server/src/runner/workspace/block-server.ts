/**
 * The block server of persistent disks (`blocks/`): a child process with its own user id and the credentials of the object
 * store. All its state is in the store, so it may die at any time. It ends when its standard input closes.
 */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, type ErrorCode } from '@coppice/contract';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { DiskFormat } from '../../lib/protocol/disk-protocol.ts';
import { JsonLineClient, RefusedRequestError } from '../../lib/streams/json-line-client.ts';

/** A store that does not answer is tried again by the block server for most of this time. */
const ANSWER_TIMEOUT_MS = 30_000;
/** A request is repeated that often when the block server restarts during it. */
const ATTEMPTS = 3;
const PAUSE_MS = 200;
const RESTART_PAUSE_MS = 200;
/** The child's descriptor of the directory of overlays. */
const OVERLAYS_FD = 3;

/** How errors of the block server appear to a caller; all others are `internal`. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  held: 'disk_in_use',
  has_forks: 'disk_has_forks',
  exists: 'already_exists',
  no_disk: 'not_found',
  no_data: 'not_found',
  no_capture: 'not_found',
  refused: 'invalid_request',
  too_large: 'payload_too_large',
  conflict: 'unavailable',
  unavailable: 'unavailable',
  store_full: 'unavailable',
  timeout: 'unavailable',
  restarted: 'unavailable',
};

/** The block server refused a request. `reason` is its own code: `stale` means that another holder took the disk. */
export class BlockServerError extends AppError {
  readonly reason: string;

  constructor(reason: string, message: string) {
    super(CODES[reason] ?? 'internal', message);
    this.reason = reason;
  }
}

export interface BlockServerOptions {
  program: string;
  /** Setting of the object store, and the directory that it is in if the setting says `directory`. */
  store: string;
  objectsDirectory: string;
  /** Absent: nothing is cached on disk. */
  cache?: { directory: string; mib: number };
  overlaysDirectory: string;
  socketPath: string;
  /** Absent if the runner is not root. */
  uid?: number;
  /** Key of the names of exports, in hex; the same for each server that serves running VMs. */
  exportKey: string;
  /** Variables with the credentials of the store. */
  environment: Readonly<Record<string, string>>;
  log: Logger;
}

interface Child {
  process: ChildProcessWithoutNullStreams;
  client: JsonLineClient;
}

/** A command that reads or writes the object store, and the environment that it needs. It becomes the user of the server. */
export interface BlockCommand {
  command: string;
  args: string[];
  env: Record<string, string>;
}

export type BlockRequest = { op: string } & Record<string, string | number | boolean | undefined>;

export class BlockServer implements Disposable {
  readonly #options: BlockServerOptions;
  #child: Child | undefined;
  #isClosed = false;

  constructor(options: BlockServerOptions) {
    this.#options = options;
    this.#child = this.#start();
  }

  /**
   * Asks the block server. All operations may be repeated. Throws {@link BlockServerError}, or `unavailable` if it does not
   * answer.
   */
  async ask<T>(
    request: BlockRequest,
    answer: z.ZodType<T>,
    { timeoutMs = ANSWER_TIMEOUT_MS } = {},
  ): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const how = { ...request, timeout_ms: timeoutMs };
        return answer.parse(await this.#client().ask(`${request.op} of a disk`, how, { timeoutMs }));
      } catch (error) {
        const explained = explain(error);
        const mayRepeat = explained instanceof BlockServerError && explained.reason === 'restarted';
        if (!mayRepeat || attempt === ATTEMPTS) throw explained;
        await delay(PAUSE_MS);
      }
    }
  }

  /** Returns the command that writes a version to its standard output. */
  exportCommand(
    { organization, disk }: { organization: string; disk: string },
    { version, format }: { version?: number; format: DiskFormat },
  ): BlockCommand {
    return this.#command('export', { org: organization, disk, version, format });
  }

  /** Returns the command that stores or fetches a capture. */
  transferCommand(kind: 'store' | 'fetch'): BlockCommand {
    return this.#command(kind, {});
  }

  /** Without the cache, which belongs to one process. */
  #command(name: string, options: Record<string, string | number | undefined>): BlockCommand {
    const { program, environment, store, objectsDirectory: objects, uid } = this.#options;
    const args = [name, ...toArguments({ store, objects, ...options, uid })];
    return { command: program, args, env: { ...environment } };
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#child?.process.stdin.end();
  }

  #client(): JsonLineClient {
    if (this.#isClosed) throw new BlockServerError('restarted', 'the runner is ending');
    this.#child ??= this.#start();
    return this.#child.client;
  }

  #start(): Child {
    const { program, overlaysDirectory, log } = this.#options;
    const directory = openSync(overlaysDirectory, 'r');
    try {
      const child = spawn(program, this.#arguments(), {
        env: { ...this.#options.environment, COPPICE_EXPORT_KEY: this.#options.exportKey },
        stdio: ['pipe', 'pipe', 'pipe', directory],
      }) as ChildProcessWithoutNullStreams;
      child.on('error', (error) => log.error({ err: error }, 'the block server cannot be started'));
      // Without free descriptors there are no pipes.
      if ((child.stdin as Writable | undefined) === undefined)
        throw new BlockServerError('restarted', 'the block server cannot be started; try again later');
      return { process: child, client: this.#connect(child) };
    } finally {
      closeSync(directory);
    }
  }

  #arguments(): string[] {
    const { store, objectsDirectory: objects, cache, socketPath: socket, uid } = this.#options;
    const caching = { cache: cache?.directory, 'cache-mib': cache?.mib };
    return ['serve', ...toArguments({ store, objects, ...caching, socket, 'overlays-fd': OVERLAYS_FD, uid })];
  }

  #connect(child: ChildProcessWithoutNullStreams): JsonLineClient {
    const { log } = this.#options;
    const client = new JsonLineClient({
      input: child.stdout,
      output: child.stdin,
      timeoutMs: ANSWER_TIMEOUT_MS,
    });
    child.stderr.on('data', (chunk: Buffer) =>
      log.warn({ said: chunk.toString('utf8').trim() }, 'block server'),
    );
    child.once('exit', (code, signal) => client.end(`the block server ended (${signal ?? code})`));
    void client.ended.then((reason) => this.#end(child, reason));
    return client;
  }

  #end(child: ChildProcessWithoutNullStreams, reason: string): void {
    child.kill('SIGKILL');
    this.#child = undefined;
    if (!this.#isClosed) this.#restart(reason);
  }

  /** Reads of VMs wait for the next block server, so it is started without a request. */
  #restart(reason: string): void {
    this.#options.log.error({ reason }, 'the block server is started again');
    setTimeout(() => {
      if (this.#isClosed) return;
      try {
        this.#child ??= this.#start();
      } catch (error) {
        // Without free descriptors, for example.
        this.#restart(String(error));
      }
    }, RESTART_PAUSE_MS).unref();
  }
}

function toArguments(options: Record<string, string | number | undefined>): string[] {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `--${name}=${value}`);
}

function explain(error: unknown): unknown {
  if (error instanceof RefusedRequestError)
    return new BlockServerError(error.reason ?? 'failed', error.message);
  // Not a fault of the caller's request.
  if (error instanceof z.ZodError)
    return new BlockServerError('failed', `the block server answered something else: ${error.message}`);
  if (error instanceof BlockServerError || !(error instanceof AppError)) return error;
  // The client's own errors: the process has ended.
  return new BlockServerError('restarted', `${error.message}; try again later`);
}
