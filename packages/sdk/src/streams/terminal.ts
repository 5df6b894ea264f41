import type { CallOptions } from '../transport/client-options.ts';
import { connect } from './connect.ts';
import type { StreamConnection } from './stream-connection.ts';
import { parseFrame, type FrameSource, type StreamFrame } from './stream-frame.ts';
import type { Transport } from '../transport/transport.ts';
import { buildWireBody, readNumber } from '../transport/wire.ts';

/** Size and program of a terminal. */
export interface TerminalOptions extends CallOptions {
  /** Columns, 1–1000. Default 80. */
  cols?: number | undefined;
  /** Rows, 1–1000. Default 24. */
  rows?: number | undefined;
  /**
   * Command for `/bin/sh -c`, at most a few KiB because it is part of a URL. Default: an interactive bash, or `sh` if
   * the image has no bash.
   */
  command?: string | undefined;
  /** Working directory. Default: the `cwd` of the sandbox, else the image's WORKDIR, else `/workspace`. */
  cwd?: string | undefined;
  /** User that runs the program: name, uid, `name:group` or `uid:gid`. Default: the image's USER, else root. */
  user?: string | undefined;
}

/** Result of the program in a terminal. */
export interface TerminalExit {
  /** Exit code of the program: 128 + n when signal n ended it. */
  exitCode: number;
}

const TERMINAL_FIELDS = {
  cols: 'cols',
  rows: 'rows',
  command: 'command',
  cwd: 'cwd',
  user: 'user',
} as const satisfies Record<Exclude<keyof TerminalOptions, 'signal'>, string>;

const MAX_SIDE = 1000;
/** Far below the limit of 1 MiB for a message. */
const MAX_MESSAGE_BYTES = 65_536;

/**
 * A program that runs on a terminal (PTY) of a sandbox. Iterate over it for its output, in one loop at a time; a
 * character or an escape sequence may be split over two pieces. Created by `sandbox.terminal()`.
 *
 * @example
 * await using terminal = await sandbox.terminal({ cols: 120, rows: 40 });
 * // for a person: process.stdin.setRawMode(true).on('data', (keys) => void terminal.write(keys));
 * await terminal.write('ls -l; exit\r');
 * for await (const bytes of terminal) process.stdout.write(bytes);
 * const { exitCode } = await terminal.wait();
 */
export class Terminal implements AsyncIterable<Uint8Array<ArrayBuffer>>, AsyncDisposable {
  readonly #connection: StreamConnection<Uint8Array<ArrayBuffer>, TerminalExit>;

  /** Called by `sandbox.terminal()` only. */
  constructor(connection: StreamConnection<Uint8Array<ArrayBuffer>, TerminalExit>) {
    this.#connection = connection;
  }

  /**
   * Sends input to the terminal; text is sent as UTF-8. Resolves when there is room for more. Rejects with {@link
   * CoppiceError} of code `closed` once the program has ended, or `timeout` when the service accepted no input for
   * `timeoutMs`.
   *
   * @example
   * await terminal.write('ls -l\r');
   * await terminal.write('\x03'); // Ctrl-C
   */
  async write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    const sent: Promise<void>[] = [];
    for (let start = 0; start < bytes.length; start += MAX_MESSAGE_BYTES) {
      // Send a copy: the caller may reuse its buffer before there is room.
      sent.push(this.#connection.send(bytes.slice(start, start + MAX_MESSAGE_BYTES)));
    }
    await Promise.all(sent);
  }

  /**
   * Sets the size of the terminal in columns and rows. Has no effect once the program has ended. Throws `TypeError`
   * unless both are integers from 1 to 1000.
   *
   * @example
   * process.stdout.on('resize', () => terminal.resize(process.stdout.columns, process.stdout.rows));
   */
  resize(cols: number, rows: number): void {
    requireSide('cols', cols);
    requireSide('rows', rows);
    if (!this.#connection.hasEnded) this.#connection.sendNow(JSON.stringify({ type: 'resize', cols, rows }));
  }

  /**
   * Waits for the end of the program and resolves with its exit code. No loop over the output is needed: unread output
   * is dropped once it exceeds 64 MiB. Do not wait inside a loop over the output. Rejects with {@link CoppiceError}
   * when the connection is lost, and with code `closed` after `close()`.
   *
   * @example
   * const { exitCode } = await terminal.wait();
   */
  wait(): Promise<TerminalExit> {
    return this.#connection.final();
  }

  /**
   * Yields the output of the terminal and returns how the program ended. Throws {@link CoppiceError} when the
   * connection is lost, and with code `reader_too_slow` when unread output was dropped.
   */
  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array<ArrayBuffer>, TerminalExit> {
    return this.#connection.items();
  }

  /**
   * Hangs up, which ends the program. Pending waits and loops reject with {@link CoppiceError} of code `closed`.
   *
   * @example
   * await terminal.close();
   */
  async close(): Promise<void> {
    await this.#connection.close('closed');
  }

  /** Closes the terminal at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Opens a terminal in the sandbox at `path`. Throws `TypeError` for an unknown option or an invalid size. */
export async function openTerminal(
  transport: Transport,
  path: string,
  { signal, ...options }: TerminalOptions,
): Promise<Terminal> {
  if (options.cols !== undefined) requireSide('cols', options.cols);
  if (options.rows !== undefined) requireSide('rows', options.rows);
  const query = buildWireBody(options, TERMINAL_FIELDS, 'terminal') as Record<string, string | number>;
  return new Terminal(
    await connect(transport, { path, endpoint: '/terminal', query, signal, parse: parseTerminalMessage }),
  );
}

function parseTerminalMessage(
  message: string | Uint8Array<ArrayBuffer>,
  source: FrameSource,
): StreamFrame<Uint8Array<ArrayBuffer>, TerminalExit> | undefined {
  if (typeof message !== 'string') return { item: message };
  const { type, frame } = parseFrame(message, source);
  return type === 'exit' ? { final: { exitCode: readNumber(frame, 'code') } } : undefined;
}

function requireSide(name: string, value: number): void {
  if (Number.isInteger(value) && value >= 1 && value <= MAX_SIDE) return;
  throw new TypeError(`${name} must be an integer from 1 to ${MAX_SIDE}, not ${String(value)}`);
}
