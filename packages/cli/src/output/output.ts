import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { formatFields, formatTable, type Column, type Field } from './table.ts';
import { toVisible, toVisibleJson } from './visible-text.ts';

/** Calls that take longer are worth a remark. */
const SLOW_MS = 1000;
export const ERASE_LINE = '\r\u001b[K';

/** Writes results to standard output, as tables for people or as JSON, and everything else to standard error. */
export class Output {
  readonly isJson: boolean;

  constructor({ json }: { json?: boolean | undefined }) {
    this.isJson = json === true;
  }

  /** Writes a list: a table, or one JSON array. */
  async list<Item>(items: readonly Item[], columns: readonly Column<Item>[]): Promise<void> {
    if (this.isJson) await this.json(items);
    else await write(process.stdout, formatTable(items, columns, { colour: hasColour(process.stdout) }));
  }

  /** Writes one object: a line for each field, or one JSON object. */
  async record(value: object, fields: readonly Field[]): Promise<void> {
    if (this.isJson) await this.json(value);
    else await write(process.stdout, formatFields(fields));
  }

  /** Writes a result of one line, or one JSON document. */
  async result(value: unknown, line: string): Promise<void> {
    if (this.isJson) await this.json(value);
    else await write(process.stdout, `${toVisible(line)}\n`);
  }

  /** Writes one JSON object as a line, for results that arrive one after the other. */
  async event(value: object): Promise<void> {
    await write(process.stdout, `${toVisibleJson(value)}\n`);
  }

  /** Writes a remark for a person. */
  note(text: string): void {
    process.stderr.write(`${toVisible(text)}\n`);
  }

  /** Shows on a terminal what a slow call does, until it is done. */
  async during<Result>(text: string, work: Promise<Result>): Promise<Result> {
    if (!process.stderr.isTTY) return work;
    let isShown = false;
    const timer = setTimeout(() => {
      isShown = true;
      process.stderr.write(text);
    }, SLOW_MS);
    try {
      return await work;
    } finally {
      clearTimeout(timer);
      if (isShown) process.stderr.write(ERASE_LINE);
    }
  }

  /** Writes one JSON document. */
  async json(value: unknown): Promise<void> {
    await write(process.stdout, `${toVisibleJson(value, 2)}\n`);
  }
}

/** Writes data as it is. Resolves when there is room for more, so that a slow reader makes the guest wait. */
export async function write(stream: Writable, data: string | Uint8Array): Promise<void> {
  if (!stream.write(data)) await once(stream, 'drain');
}

/** Waits until the reader of a stream has everything, or has left: the end of the process would drop what a pipe has no room for. */
export async function flush(stream: Writable): Promise<void> {
  await new Promise<void>((resolve) => {
    stream.once('error', () => resolve());
    stream.write('', () => resolve());
  });
}

/** Returns whether colours may be used: on a terminal, unless NO_COLOR is set (https://no-color.org). */
function hasColour(stream: NodeJS.WriteStream): boolean {
  return stream.isTTY && (process.env['NO_COLOR'] ?? '') === '' && process.env['TERM'] !== 'dumb';
}
