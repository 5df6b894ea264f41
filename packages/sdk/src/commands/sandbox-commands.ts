import type { CallOptions } from '../transport/client-options.ts';
import { fetchPage, PagedList, requireLimit, toPageItems } from '../transport/paged-list.ts';
import { postOnce, type CreateCallOptions } from '../transport/post-once.ts';
import type { Transport } from '../transport/transport.ts';
import { buildQuery, buildWireBody, readArray } from '../transport/wire.ts';
import type { ExecOptions } from '../streams/exec.ts';
import { Command, findCommand } from './command.ts';
import { parseCommandInfo, type CommandState } from './command-record.ts';

/** Settings of a command that outlives its client. */
export interface StartCommandOptions extends CreateCallOptions, Pick<ExecOptions, 'cwd' | 'env' | 'user'> {
  /** Seconds (0–31 536 000) after which the command is killed. Default 0: never. */
  timeout?: number | undefined;
  /** Text that the command reads on standard input; true keeps it open for `write()`. Default: no input. */
  stdin?: string | true | undefined;
  /** Text to find the command again, 1–128 bytes. It need not be unique. */
  tag?: string | undefined;
}

/** Options of the list of commands. */
export interface ListCommandsOptions extends CallOptions {
  /** Only commands in this state. */
  state?: CommandState | undefined;
  /** Only commands with this tag. */
  tag?: string | undefined;
  /** Maximum number over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

const START_FIELDS = {
  cwd: 'cwd',
  env: 'env',
  user: 'user',
  timeout: 'timeout',
  stdin: 'stdin',
  tag: 'tag',
} as const satisfies Record<Exclude<keyof StartCommandOptions, keyof CreateCallOptions>, string>;

/** The commands of a sandbox that outlive their client. Available as `sandbox.commands`. */
export class SandboxCommands {
  readonly #transport: Transport;
  readonly #path: string;

  /** Called by {@link Sandbox} only. */
  constructor(transport: Transport, sandboxPath: string) {
    this.#transport = transport;
    this.#path = `${sandboxPath}/commands`;
  }

  /**
   * Starts a command with `/bin/sh -c`, and resolves when it runs. Throws `TypeError` for an unknown option.
   *
   * @example
   * const server = await sandbox.commands.start('npm run dev', { tag: 'server' });
   */
  async start(command: string, options: StartCommandOptions = {}): Promise<Command> {
    const { signal, idempotencyKey, ...rest } = options;
    const body = { command, ...buildWireBody(rest, START_FIELDS, 'commands.start') };
    const call = { signal, idempotencyKey };
    const record = await postOnce(this.#transport, { path: this.#path, body, call }, parseCommandInfo);
    return new Command(this.#transport, this.#path, record);
  }

  /**
   * Finds a command by its id. Resolves with null when there is none.
   *
   * @example
   * const command = await sandbox.commands.get('cmd0123456789abcdef0123');
   */
  async get(id: string, options: CallOptions = {}): Promise<Command | null> {
    return findCommand(this.#transport, this.#path, id, options);
  }

  /**
   * Lists commands, newest first. Await the list for all of them, or iterate over it. Throws `TypeError` for an invalid
   * `limit`.
   *
   * @example
   * for await (const command of sandbox.commands.list({ state: 'running' })) console.log(command.id);
   */
  list(options: ListCommandsOptions = {}): PagedList<Command> {
    const { state, tag, limit, signal } = options;
    requireLimit(limit);
    const toCommand = (value: unknown): Command =>
      new Command(this.#transport, this.#path, parseCommandInfo(value));
    return new PagedList<Command>({
      firstQuery: buildQuery({ state, tag, limit: toPageItems(limit) }),
      fetchPage: (query) =>
        fetchPage(this.#transport, { path: this.#path, query, signal }, (value) =>
          readArray(value, 'the list of commands', toCommand),
        ),
      limit,
    });
  }
}
