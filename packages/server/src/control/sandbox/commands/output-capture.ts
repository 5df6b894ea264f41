/**
 * Keeps the output of one stream of a command up to a limit, in blocks of memory. The first block is always available.
 */

export const BLOCK_BYTES = 64 << 10;

/** Source of the blocks beyond the first. */
export interface BlockSource {
  /** Returns false if none is available now. */
  take(): boolean;
  give(): void;
}

export class OutputCapture implements Disposable {
  readonly #source: BlockSource;
  readonly #maxBytes: number;
  #blocks: Buffer[] = [];
  #size = 0;
  #isTruncated = false;

  constructor(source: BlockSource, maxBytes: number) {
    this.#source = source;
    this.#maxBytes = maxBytes;
  }

  /** True if some of the output was dropped. */
  get isTruncated(): boolean {
    return this.#isTruncated;
  }

  /** Keeps the beginning of the stream, and nothing after the first piece that does not fit. */
  push(bytes: Buffer): void {
    if (this.#isTruncated) return;
    let rest = bytes.subarray(0, this.#maxBytes - this.#size);
    this.#isTruncated = rest.length < bytes.length;
    while (rest.length > 0) {
      const block = this.#findRoom();
      if (block === undefined) {
        this.#isTruncated = true;
        return;
      }
      const copied = rest.copy(block, this.#size % BLOCK_BYTES);
      this.#size += copied;
      rest = rest.subarray(copied);
    }
  }

  /** The output as UTF-8. Invalid bytes become U+FFFD. A character that the limit cut in two is left out. */
  get text(): string {
    const all = Buffer.concat(this.#blocks, this.#size);
    return (this.#isTruncated ? all.subarray(0, lastCharacterEnd(all)) : all).toString('utf8');
  }

  [Symbol.dispose](): void {
    for (let index = 1; index < this.#blocks.length; index += 1) this.#source.give();
    this.#blocks = [];
    this.#size = 0;
    // A late push must find no room.
    this.#isTruncated = true;
  }

  /** Returns the block for the next byte, or undefined if no further block is available. */
  #findRoom(): Buffer | undefined {
    if (this.#size < this.#blocks.length * BLOCK_BYTES) return this.#blocks.at(-1);
    if (this.#blocks.length > 0 && !this.#source.take()) return undefined;
    const block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
    this.#blocks.push(block);
    return block;
  }
}

function lastCharacterEnd(bytes: Buffer): number {
  let start = bytes.length - 1;
  // A UTF-8 character has at most 3 continuation bytes, 10xxxxxx.
  while (start > bytes.length - 4 && start > 0 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start -= 1;
  const lead = bytes[start] ?? 0;
  const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return start + length > bytes.length ? Math.max(start, 0) : bytes.length;
}
