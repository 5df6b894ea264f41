/**
 * Runs commands in one bash, one after the other. Each message of the service carries the id of its run:
 *
 *   shell_run ─► (shell_out | shell_err)* ─► shell_exit      for each run, in the order of the calls
 *                                            shell_closed    once, when the shell itself has ended
 */
import { CollectedOutput, tellListener, type OutputChunk, type OutputListeners } from './collected-output.ts';
import { connect } from './connect.ts';
import type { CallOptions } from '../transport/client-options.ts';
import { buildStreamError } from './connection-errors.ts';
import { CoppiceError } from '../transport/errors.ts';
import type { StreamConnection } from './stream-connection.ts';
import { parseFrame, type FrameSource, type StreamFrame } from './stream-frame.ts';
import type { Transport } from '../transport/transport.ts';
import { buildWireBody, readNumber, readString } from '../transport/wire.ts';

/** Working directory and user of a shell. */
export interface ShellOptions extends CallOptions {
  /** Working directory. Default: the `cwd` of the sandbox, else the image's WORKDIR, else `/workspace`. */
  cwd?: string | undefined;
  /** User that runs the shell: name, uid, `name:group` or `uid:gid`. Default: the image's USER, else root. */
  user?: string | undefined;
}

/** Result of a command in a shell. An exit code other than zero is a result, not an error. */
export interface ShellResult {
  /** Exit code of the command. */
  exitCode: number;
  /** Standard output. */
  stdout: string;
  /** Standard error. */
  stderr: string;
  /** True if output beyond 16 Mi characters of a stream was dropped. Listeners still received all of it. */
  truncated: boolean;
}

type ShellFrame = { id: string } & ({ chunk: OutputChunk } | { exitCode: number });

interface Run {
  collected: CollectedOutput;
  listeners: OutputListeners;
  resolve: (result: ShellResult) => void;
  reject: (reason: unknown) => void;
}

const SHELL_FIELDS = { cwd: 'cwd', user: 'user' } as const satisfies Record<
  Exclude<keyof ShellOptions, 'signal'>,
  string
>;
const CLOSED = 'shell_closed';

/**
 * A bash that keeps its directory, variables, functions and background jobs from one command to the next. Created by
 * `sandbox.shell()`.
 *
 * @example
 * await using shell = await sandbox.shell({ cwd: '/workspace' });
 * await shell.run('export CI=1; cd packages/sdk');
 * const { exitCode, stdout } = await shell.run('npm test');
 */
export class Shell implements AsyncDisposable {
  /** Resolves when the shell has ended or was closed. Rejects when the connection was lost or aborted. */
  readonly closed: Promise<void>;
  readonly #connection: StreamConnection<ShellFrame, void>;
  readonly #runs = new Map<string, Run>();
  #lastId = 0;
  #end: { error: unknown } | undefined;

  /** Called by `sandbox.shell()` only. */
  constructor(connection: StreamConnection<ShellFrame, void>) {
    this.#connection = connection;
    this.closed = this.#serve();
    this.closed.catch(() => undefined);
  }

  /**
   * Runs a command after the earlier ones and waits for its end. There is no time limit: to stop a command that does
   * not end, `close()` the shell. Output that a background job writes after the end of its command is lost: redirect it
   * to a file. If a listener throws, the call rejects with that error and the command continues. Rejects with
   * `TypeError` for a command that is empty, contains NUL or exceeds 1 MiB; with code `shell_closed` once the shell has
   * ended; and with {@link CoppiceError} when the connection is lost.
   *
   * @example
   * const { exitCode } = await shell.run('make', { onStdout: (text) => process.stdout.write(text) });
   */
  async run(command: string, listeners: OutputListeners = {}): Promise<ShellResult> {
    requireCommand(command);
    if (this.#end !== undefined) throw this.#end.error;
    const id = String((this.#lastId += 1));
    const result = new Promise<ShellResult>((resolve, reject) => {
      this.#runs.set(id, { collected: new CollectedOutput(), listeners, resolve, reject });
    });
    const sent = this.#connection.send(JSON.stringify({ type: 'shell_run', id, command }));
    sent.catch((error: unknown) => {
      // If the connection has ended, `#serve` first reads the remaining frames and then reports the reason of the end.
      if (!this.#connection.hasEnded) this.#giveUp(id, error);
    });
    return result;
  }

  /**
   * Ends the shell and its foreground command. Unfinished runs reject with code `shell_closed`.
   *
   * @example
   * await shell.close();
   */
  async close(): Promise<void> {
    await this.#connection.close(CLOSED);
  }

  /** Closes the shell at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #serve(): Promise<void> {
    try {
      for await (const frame of this.#connection.items()) await this.#take(frame);
      this.#endRuns(buildStreamError(this.#connection.label, CLOSED, 'the shell has ended'));
    } catch (error) {
      this.#endRuns(error);
      if (!(error instanceof CoppiceError) || error.code !== CLOSED) throw error;
    }
  }

  /** Handles a frame. Frames of a finished run are ignored. */
  async #take(frame: ShellFrame): Promise<void> {
    const run = this.#runs.get(frame.id);
    if (run === undefined) return;
    if ('exitCode' in frame) {
      this.#runs.delete(frame.id);
      run.resolve({ exitCode: frame.exitCode, ...run.collected.all });
      return;
    }
    run.collected.add(frame.chunk);
    try {
      await tellListener(run.listeners, frame.chunk);
    } catch (error) {
      this.#giveUp(frame.id, error);
    }
  }

  #giveUp(id: string, error: unknown): void {
    this.#runs.get(id)?.reject(error);
    this.#runs.delete(id);
  }

  #endRuns(error: unknown): void {
    this.#end = { error };
    for (const run of this.#runs.values()) run.reject(error);
    this.#runs.clear();
  }
}

/** Opens a shell in the sandbox at `path`. Throws `TypeError` for an unknown option. */
export async function openShell(
  transport: Transport,
  path: string,
  { signal, ...options }: ShellOptions,
): Promise<Shell> {
  const query = buildWireBody(options, SHELL_FIELDS, 'shell') as Record<string, string>;
  return new Shell(
    await connect(transport, { path, endpoint: '/shell', query, signal, parse: parseShellFrame }),
  );
}

function parseShellFrame(
  message: string | Uint8Array,
  source: FrameSource,
): StreamFrame<ShellFrame, void> | undefined {
  if (typeof message !== 'string') return undefined;
  const { type, frame } = parseFrame(message, source);
  if (type === 'shell_closed') return { final: undefined };
  if (type === 'shell_exit')
    return { item: { id: readString(frame, 'id'), exitCode: readNumber(frame, 'code') } };
  if (type !== 'shell_out' && type !== 'shell_err') return undefined;
  const chunk = {
    type: type === 'shell_out' ? 'stdout' : 'stderr',
    data: readString(frame, 'data'),
  } as const;
  return { item: { id: readString(frame, 'id'), chunk } };
}

/** Throws `TypeError` for a command that the service refuses, because the service would close the whole shell. */
function requireCommand(command: string): void {
  if (typeof command === 'string' && command !== '' && !command.includes('\0')) return;
  throw new TypeError('command must be a non-empty string without NUL');
}
