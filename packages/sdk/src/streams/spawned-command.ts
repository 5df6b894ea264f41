import type { OutputChunk } from './collected-output.ts';
import { parseExecFrame, type CommandExit } from './command-stream.ts';
import { CommandStdin } from './command-stdin.ts';
import { connect } from './connect.ts';
import { buildExecRequest, type ExecOptions } from './exec.ts';
import type { StreamConnection } from './stream-connection.ts';
import type { Transport } from '../transport/transport.ts';

/** Options of `sandbox.spawn()`. Input is written to {@link SpawnedCommand}. */
export type SpawnOptions = Omit<ExecOptions, 'stdin'>;

const SIGNAL_NAME = /^(?:SIG)?[A-Z][A-Z0-9]{1,9}$/;

/**
 * A running command with open standard input. Iterate over it for its output, in one loop at a time; a later loop
 * continues where the last one stopped. Unread output makes the command wait if the WebSocket can be paused; see
 * "Back-pressure" in the README. Created by `sandbox.spawn()`.
 *
 * @example
 * await using command = await sandbox.spawn('python3 -iq', { timeout: 600 });
 * await command.stdin.write('print(6 * 7)\n');
 * await command.stdin.end();
 * for await (const { type, data } of command) process[type].write(data);
 * const { exitCode } = await command.wait();
 */
export class SpawnedCommand implements AsyncIterable<OutputChunk>, AsyncDisposable {
  /** Standard input of the command. */
  readonly stdin: CommandStdin;
  readonly #connection: StreamConnection<OutputChunk, CommandExit>;

  /** Called by `sandbox.spawn()` only. */
  constructor(connection: StreamConnection<OutputChunk, CommandExit>) {
    this.#connection = connection;
    this.stdin = new CommandStdin(connection);
  }

  /**
   * Sends a signal to the command and its children. `signal` is a name with or without `SIG`, for example `INT`. The
   * signal is delivered after the input that was written before it. A command that does not read its input must
   * therefore be ended with `close()`. After the end of the command the call has no effect. Throws `TypeError` for
   * another name.
   *
   * @example
   * command.kill('INT');
   */
  kill(signal = 'TERM'): void {
    if (!SIGNAL_NAME.test(signal)) throw new TypeError(`signal must be a name such as TERM, not ${signal}`);
    if (!this.#connection.hasEnded) this.#connection.sendNow(JSON.stringify({ type: 'signal', signal }));
  }

  /**
   * Waits for the end of the command and resolves with its exit code. No loop over the output is needed: unread output
   * is dropped once it exceeds 64 MiB. Do not wait inside a loop over the output. Rejects with {@link CoppiceError}
   * when the connection is lost, and with code `closed` after `close()`.
   *
   * @example
   * const { exitCode, timedOut } = await command.wait();
   */
  wait(): Promise<CommandExit> {
    return this.#connection.final();
  }

  /**
   * Yields the output of the command and returns how it ended. Throws {@link CoppiceError} when the connection is lost,
   * and with code `reader_too_slow` when unread output was dropped.
   */
  [Symbol.asyncIterator](): AsyncGenerator<OutputChunk, CommandExit> {
    return this.#connection.items();
  }

  /**
   * Closes the connection, which kills the command. Pending waits and loops reject with {@link CoppiceError} of code
   * `closed`.
   *
   * @example
   * await command.close();
   */
  async close(): Promise<void> {
    await this.#connection.close('closed');
  }

  /** Closes the connection at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Starts a command in the sandbox at `path`. Throws `TypeError` for an unknown option, and for `stdin`. */
export async function spawnCommand(
  transport: Transport,
  path: string,
  command: string,
  options: SpawnOptions,
): Promise<SpawnedCommand> {
  if ('stdin' in options)
    throw new TypeError('spawn: there is no option "stdin"; write to stdin of the result');
  const request = buildExecRequest(transport, path, command, options);
  const connection = await connect<OutputChunk, CommandExit>(transport, {
    path,
    endpoint: '/exec/ws',
    signal: options.signal,
    // By then the command has ended, so silence means that the connection is dead.
    silenceMs: request.timeoutMs,
    parse: (message, source) => (typeof message === 'string' ? parseExecFrame(message, source) : undefined),
  });
  try {
    await connection.send(request.body as string);
  } catch (error) {
    await connection.close('closed');
    throw error;
  }
  return new SpawnedCommand(connection);
}
