import type { FileHandle } from 'node:fs/promises';

/**
 * Reads a file at given offsets through one buffer, so that thousands of small, nearby reads cost few system calls.
 */
export class ByteWindow {
  readonly #file: FileHandle;
  readonly #buffer: Buffer;
  #start = 0;
  #length = 0;

  constructor(file: FileHandle, windowBytes: number) {
    this.#file = file;
    this.#buffer = Buffer.allocUnsafe(windowBytes);
  }

  get windowBytes(): number {
    return this.#buffer.length;
  }

  /**
   * Returns `length` bytes from `offset`, fewer only at the end of the file; `length` is at most the window. They are
   * valid until the next call.
   */
  async view(offset: number, length: number): Promise<Buffer> {
    if (length > this.#buffer.length) throw new RangeError(`view of ${length} bytes`);
    const isInside = offset >= this.#start && offset + length <= this.#start + this.#length;
    if (!isInside) await this.#fill(offset);
    const from = offset - this.#start;
    return this.#buffer.subarray(from, Math.min(from + length, this.#length));
  }

  async #fill(offset: number): Promise<void> {
    this.#start = offset;
    this.#length = 0;
    while (this.#length < this.#buffer.length) {
      const { bytesRead } = await this.#file.read(
        this.#buffer,
        this.#length,
        this.#buffer.length - this.#length,
        offset + this.#length,
      );
      if (bytesRead === 0) return;
      this.#length += bytesRead;
    }
  }
}
