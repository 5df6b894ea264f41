/**
 * Text that keeps its beginning and its end: what a command prints first and last says most. The middle is dropped as it
 * arrives, so the memory is bounded whatever the length.
 */
export class CutText {
  readonly #halfLength: number;
  /** A byte order mark is a character of the output. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  #head = '';
  #tail = '';
  #bytes = 0;
  #length = 0;

  /** `maxLength` in characters. */
  constructor(maxLength: number) {
    this.#halfLength = Math.ceil(maxLength / 2);
  }

  /** Adds bytes. A character may continue in the next ones; what is not UTF-8 becomes U+FFFD. */
  add(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    this.#append(this.#decoder.decode(bytes, { stream: true }));
  }

  /** Call after the last bytes. */
  end(): void {
    this.#append(this.#decoder.decode());
  }

  #append(text: string): void {
    this.#length += text.length;
    const room = this.#halfLength - this.#head.length;
    this.#head += text.slice(0, room);
    this.#tail += text.slice(room);
    // The end is cut only now and then: cutting at each small piece would copy all of it each time.
    if (this.#tail.length > 2 * this.#halfLength) this.#tail = this.#tail.slice(-this.#halfLength);
  }

  /** Number of bytes that were added. */
  get bytes(): number {
    return this.#bytes;
  }

  get isCut(): boolean {
    return this.#length > 2 * this.#halfLength;
  }

  /** The text; if it is cut, with a line in the middle that says how much is left out. */
  toString(): string {
    if (!this.isCut) return this.#head + this.#tail;
    const tail = this.#tail.slice(-this.#halfLength);
    const left = this.#length - this.#head.length - tail.length;
    const mark = `\n[… ${left} of ${this.#length} characters are left out here …]\n`;
    // A cut may split a surrogate pair, and JSON must not hold half of one.
    return `${this.#head.toWellFormed()}${mark}${tail.toWellFormed()}`;
  }
}
