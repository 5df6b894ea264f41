/** Converts output of a command, as bytes with offsets, to what clients receive. Text is cut only between characters. */
import type { CommandEvent, CommandOutputQuery } from '@coppice/contract';
import type { KeptOutput } from './kept-output.ts';

export type OutputPart = Extract<KeptOutput, { data: Buffer }>;
export type TextPart = Extract<CommandEvent, { data: string; offset: number }>;
type Channel = OutputPart['type'];

/** The begin of a character whose rest has not come yet. */
interface Held {
  bytes: Buffer;
  offset: number;
}

export class OutputText {
  readonly #shown: Pick<CommandOutputQuery, 'encoding' | 'stream'>;
  readonly #held = new Map<Channel, Held>();

  /** Leaves out the stream that is not asked for. */
  constructor(shown: Pick<CommandOutputQuery, 'encoding' | 'stream'>) {
    this.#shown = shown;
  }

  /** Returns nothing for a part of a character. */
  encode({ type, offset, data }: OutputPart): TextPart[] {
    const { encoding, stream } = this.#shown;
    if (stream !== undefined && stream !== type) return [];
    if (encoding === 'base64') return [{ type, data: data.toString('base64'), offset }];
    const held = this.#held.get(type);
    const bytes = held === undefined ? data : Buffer.concat([held.bytes, data]);
    const from = held?.offset ?? offset;
    const whole = bytes.length - countIncomplete(bytes);
    if (whole === bytes.length) this.#held.delete(type);
    else {
      const isOfBefore = held !== undefined && whole === 0;
      const left = bytes.subarray(whole);
      this.#held.set(type, { bytes: left, offset: isOfBefore ? from : offset + data.length - left.length });
    }
    return whole === 0 ? [] : [{ type, data: bytes.toString('utf8', 0, whole), offset: from }];
  }

  /** Where a reader that has received all whole characters before `end` continues. */
  nextOffset(end: number): number {
    return Math.min(end, ...[...this.#held.values()].map(({ offset }) => offset));
  }

  /** Returns the incomplete characters at the end, as U+FFFD. */
  end(): TextPart[] {
    const rest = [...this.#held].map(([type, { bytes, offset }]) => ({
      type,
      data: bytes.toString('utf8'),
      offset,
    }));
    this.#held.clear();
    return rest;
  }
}

/** Counts the bytes at the end that only begin a character. */
function countIncomplete(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80 || byte > 0xf4) return 0;
    if (byte >= 0xc2) return lengthOf(byte) > back ? back : 0;
  }
  return 0;
}

function lengthOf(first: number): number {
  if (first >= 0xf0) return 4;
  return first >= 0xe0 ? 3 : 2;
}
