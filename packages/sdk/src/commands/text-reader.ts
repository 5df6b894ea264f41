/** Decodes output of which each stream may be cut in the middle of a character, and knows where a reader continues. */

/** The begin of a character whose rest has not come yet. */
interface Held {
  bytes: Uint8Array;
  offset: number;
}

/** A byte order mark is a character of the output. */
const DECODER = new TextDecoder('utf-8', { ignoreBOM: true });

type Channel = 'stdout' | 'stderr';

export class TextReader {
  readonly #held = new Map<Channel, Held>();

  /** Returns the whole characters of a part, with those that had begun before. */
  decode(type: Channel, bytes: Uint8Array, offset: number): string {
    const held = this.#held.get(type);
    const all = held === undefined ? bytes : concat(held.bytes, bytes);
    const rest = all.subarray(all.length - countIncomplete(all));
    this.#held.delete(type);
    if (rest.length > 0) {
      const isOfBefore = held !== undefined && rest.length > bytes.length;
      this.#held.set(type, {
        bytes: rest,
        offset: isOfBefore ? held.offset : offset + bytes.length - rest.length,
      });
    }
    return DECODER.decode(all.subarray(0, all.length - rest.length));
  }

  /** Where a reader that has the whole characters before `end` continues. */
  nextOffset(end: number): number {
    return Math.min(end, ...[...this.#held.values()].map(({ offset }) => offset));
  }

  /** Returns the characters that do not continue, as U+FFFD. */
  end(): { type: Channel; data: string }[] {
    const rest = [...this.#held].map(([type, { bytes }]) => ({
      type,
      data: DECODER.decode(bytes),
    }));
    this.#held.clear();
    return rest;
  }
}

function concat(first: Uint8Array, second: Uint8Array): Uint8Array {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/** Counts the bytes at the end that only begin a character. */
function countIncomplete(bytes: Uint8Array): number {
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
