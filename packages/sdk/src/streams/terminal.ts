import type { CallOptions } from '../transport/client-options.ts';
import { connect } from './connect.ts';
import type { StreamConnection } from './stream-connection.ts';
import { parseFrame, type FrameSource, type StreamFrame } from './stream-frame.ts';
import type { Transport } from '../transport/transport.ts';
import { buildWireBody, readNumber } from '../transport/wire.ts';

/** What a terminal runs, and its size. */
export interface TerminalOptions extends CallOptions {
  /** Columns, 1–1000. Default 80. */
  cols?: number | undefined;
  /** Rows, 1–1000. Default 24. */
  rows?: number | undefined;
  /** Of at most some KiB: it is part of an address. Default: an interactive bash, or `sh` where there is none. */
  command?: string | undefined;
  /** Working directory. Default: the image's, else `/workspace`. */
  cwd?: string | undefined;
  /** Name or uid, with `:group` if you like. Default: the image's user, else root. */
  user?: string | undefined;
}

/** How the program in a terminal ended. */
export interface TerminalExit {
  /** 128 + n when signal n ended it. */
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
/** Far below the 1 MiB of a message. */
const MAX_MESSAGE_BYTES = 65_536;

/**
 * A terminal of a sandbox, for a program that wants one. Iterate over it for its output, in one loop at a time; a
 * character or an escape sequence may be split over two pieces. Made by `sandbox.terminal()`.
 *
 * @example
 * await using terminal = await sandbox.terminal({ cols: process.stdout.columns, rows: process.stdout.rows });
 * process.stdin.setRawMode(true).on('data', (keys) => void terminal.write(keys));
 * for await (const bytes of terminal) process.stdout.write(bytes);
 * const { exitCode } = await terminal.wait();
 */
export class Terminal implements AsyncIterable<Uint8Array<ArrayBuffer>>, AsyncDisposable {
  readonly #connection: StreamConnection<Uint8Array<ArrayBuffer>, TerminalExit>;

  /** Made by `sandbox.terminal()`. */
  constructor(connection: StreamConnection<Uint8Array<ArrayBuffer>, TerminalExit>) {
    this.#connection = connection;
  }

  /**
   * Types: text goes as UTF-8. Resolves when there is room for more.
   *
   * @example
   * await terminal.write('ls -l\r');
   * await terminal.write('\x03'); // Ctrl-C
   */
  async write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    const sent: Promise<void>[] = [];
    for (let start = 0; start < bytes.length; start += MAX_MESSAGE_BYTES) {
      // A copy: the caller may use its buffer again before there is room.
      sent.push(this.#connection.send(bytes.slice(start, start + MAX_MESSAGE_BYTES)));
    }
    await Promise.all(sent);
  }

  /**
   * Tells the program the size of its window. Nothing happens once it has ended.
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
   * Waits for the end. It needs no loop beside it: what nobody reads is let go when it is over 64 MiB. Do not wait for it
   * inside of a loop over the output.
   *
   * @example
   * const { exitCode } = await terminal.wait();
   */
  wait(): Promise<TerminalExit> {
    return this.#connection.final();
  }

  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array<ArrayBuffer>, TerminalExit> {
    return this.#connection.items();
  }

  /**
   * Hangs up, which ends the program. Whoever still waits gets a {@link CoppiceError} with code `closed`.
   *
   * @example
   * await terminal.close();
   */
  async close(): Promise<void> {
    await this.#connection.close('closed');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** `path` is that of the sandbox. */
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
