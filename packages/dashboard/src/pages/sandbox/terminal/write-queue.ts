/** Bytes that the terminal has not drawn yet; beyond these the connection is not read. */
const HIGH_BYTES = 512 * 1024;
const LOW_BYTES = 128 * 1024;

/** Writes to a terminal no faster than it draws. */
export class WriteQueue {
  readonly #write: (bytes: Uint8Array, done: () => void) => void;
  #pendingBytes = 0;
  #wake: (() => void) | undefined;

  constructor(write: (bytes: Uint8Array, done: () => void) => void) {
    this.#write = write;
  }

  /** Writes, and resolves when there is room for more. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#pendingBytes += bytes.length;
    this.#write(bytes, () => {
      this.#pendingBytes -= bytes.length;
      if (this.#pendingBytes <= LOW_BYTES) this.#wake?.();
    });
    if (this.#pendingBytes > HIGH_BYTES) await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}
