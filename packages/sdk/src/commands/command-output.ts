import type { CallOptions } from '../transport/client-options.ts';
import { decodeBase64 } from '../transport/base64.ts';
import { CoppiceError } from '../transport/errors.ts';
import { isLostConnection, waitForAttempt } from '../transport/lost-connection.ts';
import { readEventData } from '../streams/event-stream.ts';
import type { CommandExit } from '../streams/command-stream.ts';
import { parseFrame } from '../streams/stream-frame.ts';
import { TextReader } from './text-reader.ts';
import type { Transport } from '../transport/transport.ts';
import { buildQuery, readFlag, readNumber, readString } from '../transport/wire.ts';

/** A piece of the output of a command, or a gap in it. */
export type CommandOutput =
  | {
      /** Stream to which the command wrote. */
      type: 'stdout' | 'stderr';
      /** Text, cut between characters. */
      data: string;
      /** Where the next piece begins: continue from there. */
      nextOffset: number;
    }
  | {
      /** The service keeps this part no more. */
      type: 'dropped';
      /** Number of bytes. */
      bytes: number;
      nextOffset: number;
    };

/** Options of reading the output of a command. */
export interface CommandOutputOptions extends CallOptions {
  /** Where to begin, in bytes of standard output and standard error together. Default 0: the oldest that is kept. */
  offset?: number | undefined;
  /** Reads only this stream. Default: both. */
  stream?: 'stdout' | 'stderr' | undefined;
}

/** In characters. An event has at most 64 KiB of output in base64. */
const MAX_EVENT_LENGTH = 1 << 20;
/** Tries to continue after a lost connection, one after the other, before the error is the caller's. */
const MAX_FAILURES = 8;

/**
 * Yields the output of the command at `path` up to its end, and returns how it ended. After a lost connection it continues
 * where it was: nothing is repeated, and a part that is lost is yielded as `dropped`.
 */
export async function* readCommandOutput(
  transport: Transport,
  path: string,
  options: CommandOutputOptions,
): AsyncGenerator<CommandOutput, CommandExit> {
  const reading = new Reading(transport, path, options);
  for (let failures = 0; ; failures += 1) {
    const before = reading.offset;
    try {
      return yield* reading.readOn();
    } catch (error) {
      if (reading.offset > before) failures = 0;
      if (!isLostConnection(error) || failures >= MAX_FAILURES) throw error;
      await waitForAttempt(failures, options.signal);
    }
  }
}

class Reading {
  /** Where the next event begins. */
  offset: number;
  readonly #transport: Transport;
  readonly #path: string;
  readonly #options: CommandOutputOptions;
  readonly #text = new TextReader();

  constructor(transport: Transport, path: string, options: CommandOutputOptions) {
    this.#transport = transport;
    this.#path = path;
    this.#options = options;
    this.offset = options.offset ?? 0;
  }

  async *readOn(): AsyncGenerator<CommandOutput, CommandExit> {
    const { stream, signal } = this.#options;
    const path = `${this.#path}/output`;
    const source = { label: `GET ${path}`, status: 200 };
    const body = await this.#transport.callStream({
      method: 'GET',
      path,
      query: buildQuery({ offset: this.offset, stream, encoding: 'base64' }),
      headers: { accept: 'text/event-stream' },
      idempotent: true,
      signal,
    });
    for await (const text of readEventData(body, MAX_EVENT_LENGTH)) {
      const { type, frame } = parseFrame(text, source);
      if (type === 'exit') {
        yield* this.#flush();
        return { exitCode: Number(readString(frame, 'data')), timedOut: readFlag(frame, 'timed_out') };
      }
      if (type === 'dropped') {
        const nextOffset = readNumber(frame, 'next_offset');
        const bytes = nextOffset - this.offset;
        this.offset = nextOffset;
        yield* this.#flush();
        yield { type, bytes, nextOffset };
      } else if (type === 'stdout' || type === 'stderr') {
        const bytes = decodeBase64(readString(frame, 'data'));
        const offset = readNumber(frame, 'offset');
        const data = this.#text.decode(type, bytes, offset);
        this.offset = offset + bytes.length;
        if (data !== '') yield { type, data, nextOffset: this.#text.nextOffset(this.offset) };
      }
    }
    throw new CoppiceError(`${source.label}: the stream ended before the command`, {
      status: 0,
      code: 'connection_failed',
    });
  }

  /** Yields the characters that have begun and do not continue. */
  *#flush(): Generator<CommandOutput> {
    for (const { type, data } of this.#text.end()) yield { type, data, nextOffset: this.offset };
  }
}
