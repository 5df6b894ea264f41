import type { OutputChunk } from './collected-output.ts';
import { parseExecFrame, type CommandExit } from './command-stream.ts';
import { CommandStdin } from './command-stdin.ts';
import { connect } from './connect.ts';
import { buildExecRequest, type ExecOptions } from './exec.ts';
import type { StreamConnection } from './stream-connection.ts';
import type { Transport } from '../transport/transport.ts';

/** How to run a command whose input comes later. */
export type SpawnOptions = Omit<ExecOptions, 'stdin'>;

const SIGNAL_NAME = /^(?:SIG)?[A-Z][A-Z0-9]{1,9}$/;

/**
 * A command that runs while you write to it and read from it. Iterate over it for its output, in one loop at a time: the
 * next goes on where the last was left. Output that is not read makes the command wait, see the README. Made by
 * `sandbox.spawn()`.
 *
 * @example
 * await using command = await sandbox.spawn('python3 -iq', { timeout: 600 });
 * await command.stdin.write('print(6 * 7)\n');
 * await command.stdin.end();
 * for await (const { type, data } of command) process[type].write(data);
 * const { exitCode } = await command.wait();
 */
export class SpawnedCommand implements AsyncIterable<OutputChunk>, AsyncDisposable {
  readonly stdin: CommandStdin;
  readonly #connection: StreamConnection<OutputChunk, CommandExit>;

  /** Made by `sandbox.spawn()`. */
  constructor(connection: StreamConnection<OutputChunk, CommandExit>) {
    this.#connection = connection;
    this.stdin = new CommandStdin(connection);
  }

  /**
   * Sends a signal, by its name with or without SIG, to the command and its children. It takes its turn behind what was
   * written to standard input: a command that does not read that is ended by `close()`. Nothing happens once it has ended.
   *
   * @example
   * command.kill('INT');
   */
  kill(signal = 'TERM'): void {
    if (!SIGNAL_NAME.test(signal)) throw new TypeError(`signal must be a name such as TERM, not ${signal}`);
    if (!this.#connection.hasEnded) this.#connection.sendNow(JSON.stringify({ type: 'signal', signal }));
  }

  /**
   * Waits for the end. It needs no loop beside it: what nobody reads is let go when it is over 64 MiB. Do not wait for it
   * inside of a loop over the output.
   *
   * @example
   * const { exitCode, timedOut } = await command.wait();
   */
  wait(): Promise<CommandExit> {
    return this.#connection.final();
  }

  [Symbol.asyncIterator](): AsyncGenerator<OutputChunk, CommandExit> {
    return this.#connection.items();
  }

  /**
   * Leaves, which kills the command. Whoever still waits gets a {@link CoppiceError} with code `closed`.
   *
   * @example
   * await command.close();
   */
  async close(): Promise<void> {
    await this.#connection.close('closed');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** `path` is that of the sandbox. */
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
    // The command has ended by then, so that silence means that nobody is there.
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
