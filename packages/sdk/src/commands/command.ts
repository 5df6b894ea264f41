import type { CallOptions } from '../transport/client-options.ts';
import { nullIfMissing } from '../transport/errors.ts';
import type { CommandExit } from '../streams/command-stream.ts';
import type { Transport } from '../transport/transport.ts';
import { buildQuery, encodeSegment } from '../transport/wire.ts';
import { readCommandOutput, type CommandOutput, type CommandOutputOptions } from './command-output.ts';
import { parseCommandInfo, type CommandInfo, type CommandState } from './command-record.ts';

/** Seconds for which the service waits in one request. */
const WAIT_S = 30;

/** Options of input for a command. */
export interface CommandInputOptions extends CallOptions {
  /** Ends the input: the command then reads an end of file. Default false. */
  end?: boolean | undefined;
}

/**
 * A command that outlives its client: it continues when the connection is lost, when the service restarts, and while the
 * sandbox hibernates. The object holds the record that the service sent last. Calls reject with {@link CoppiceError}.
 *
 * @example
 * const command = await sandbox.commands.start('npm run build', { tag: 'build' });
 * for await (const chunk of command.output()) if (chunk.type !== 'dropped') process[chunk.type].write(chunk.data);
 * const { exitCode } = await command.wait();
 */
export class Command {
  readonly #transport: Transport;
  readonly #path: string;
  #record: CommandInfo;

  /** Called by the client only. `commandsPath` is the path of the sandbox's commands. */
  constructor(transport: Transport, commandsPath: string, record: CommandInfo) {
    this.#transport = transport;
    this.#path = `${commandsPath}/${encodeSegment(record.id, 'the command id')}`;
    this.#record = record;
  }

  /** Id of the command, for example `cmd0123456789abcdef0123`. */
  get id(): string {
    return this.#record.id;
  }

  /** State of the command in the record that the service sent last. */
  get state(): CommandState {
    return this.#record.state;
  }

  /** The record that the service sent last. */
  get record(): Readonly<CommandInfo> {
    return this.#record;
  }

  /**
   * Yields the output up to the end of the command; the return value says how it ended. After a lost connection it continues
   * where it was: nothing is repeated, and a part that is lost is yielded as `dropped`. Leaving the loop has no effect on the
   * command.
   *
   * @example
   * for await (const chunk of command.output({ stream: 'stderr' })) console.log(chunk);
   */
  output(options: CommandOutputOptions = {}): AsyncGenerator<CommandOutput, CommandExit> {
    return readCommandOutput(this.#transport, this.#path, options);
  }

  /**
   * Waits until the command has ended, and resolves with its record. Wait with a signal to wait for a limited time.
   *
   * @example
   * const { exitCode } = await command.wait({ signal: AbortSignal.timeout(60_000) });
   */
  async wait({ signal }: CallOptions = {}): Promise<CommandInfo> {
    for (;;) {
      const query = buildQuery({ timeout: WAIT_S });
      const timeoutMs = this.#transport.timeoutMs + WAIT_S * 1000;
      const path = `${this.#path}/wait`;
      await this.#fetch({ method: 'GET', path, query, idempotent: true, signal, timeoutMs });
      if (this.#record.state !== 'running') return this.#record;
    }
  }

  /**
   * Sends a signal, for example `TERM` or `INT`, to the command and all processes that it has started. Rejects with code
   * `invalid_state` when it has ended.
   *
   * @example
   * await command.signal('TERM');
   */
  async signal(name: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#fetch({
      method: 'POST',
      path: `${this.#path}/signal`,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ signal: name }),
      idempotent: false,
      signal,
    });
  }

  /**
   * Writes to standard input of a command that was started with `stdin: true`. Resolves when the command has read it, up to
   * what a pipe holds.
   *
   * @example
   * await command.write('yes\n', { end: true });
   */
  async write(data: string | Uint8Array, { end = false, signal }: CommandInputOptions = {}): Promise<void> {
    await this.#fetch({
      method: 'POST',
      path: `${this.#path}/stdin`,
      query: buildQuery({ end: String(end) }),
      headers: { 'content-type': 'application/octet-stream' },
      body: data,
      idempotent: false,
      signal,
    });
  }

  /**
   * Fetches the current record, and stores it in `record`.
   *
   * @example
   * const { state, outputBytes } = await command.info();
   */
  async info({ signal }: CallOptions = {}): Promise<CommandInfo> {
    return this.#fetch({ method: 'GET', path: this.#path, idempotent: true, signal });
  }

  async #fetch(request: Parameters<Transport['callJson']>[0]): Promise<CommandInfo> {
    this.#record = (await this.#transport.callJson(request, parseCommandInfo)).value;
    return this.#record;
  }
}

/** Fetches a command. Resolves with null if there is none. */
export async function findCommand(
  transport: Transport,
  commandsPath: string,
  id: string,
  { signal }: CallOptions,
): Promise<Command | null> {
  const path = `${commandsPath}/${encodeSegment(id, 'the command id')}`;
  const answer = await nullIfMissing(
    transport.callJson({ method: 'GET', path, idempotent: true, signal }, parseCommandInfo),
  );
  return answer && new Command(transport, commandsPath, answer.value);
}
