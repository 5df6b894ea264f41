/** Reads big-endian fields from hostile bytes. It never throws: an incomplete field is undefined. */
export class ByteReader {
  readonly #bytes: Buffer;
  #offset = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#offset === this.#bytes.length;
  }

  /** Reads an unsigned number of 1 to 6 bytes. */
  uint(byteCount: number): number | undefined {
    const field = this.take(byteCount);
    return field?.readUIntBE(0, byteCount);
  }

  take(byteCount: number): Buffer | undefined {
    const end = this.#offset + byteCount;
    if (end > this.#bytes.length) return undefined;
    const field = this.#bytes.subarray(this.#offset, end);
    this.#offset = end;
    return field;
  }

  /** Reads a field after its length, which is a number of `lengthBytes` bytes. */
  vector(lengthBytes: number): Buffer | undefined {
    const length = this.uint(lengthBytes);
    return length === undefined ? undefined : this.take(length);
  }
}
