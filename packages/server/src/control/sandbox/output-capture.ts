/** Output of a command, kept up to a limit; all commands together share a budget of memory. */

const MIN_ROOM_BYTES = 4096;

/** Bytes that all captures may hold together. */
export class OutputBudget {
  #left: number;

  constructor(totalBytes: number) {
    this.#left = totalBytes;
  }

  /** Takes up to `bytes`; returns how many it got. */
  take(bytes: number): number {
    const taken = Math.min(bytes, this.#left);
    this.#left -= taken;
    return taken;
  }

  give(bytes: number): void {
    this.#left += bytes;
  }
}

export class OutputCapture implements Disposable {
  readonly #budget: OutputBudget;
  readonly #maxBytes: number;
  #kept = Buffer.alloc(0);
  #size = 0;
  #isTruncated = false;

  constructor(budget: OutputBudget, maxBytes: number) {
    this.#budget = budget;
    this.#maxBytes = maxBytes;
  }

  /** True when not all that came was kept. */
  get isTruncated(): boolean {
    return this.#isTruncated;
  }

  push(bytes: Buffer): void {
    if (this.#isTruncated) return;
    const taken = this.#budget.take(Math.min(bytes.length, this.#maxBytes - this.#size));
    this.#isTruncated = taken < bytes.length;
    this.#makeRoom(this.#size + taken);
    bytes.copy(this.#kept, this.#size, 0, taken);
    this.#size += taken;
  }

  /** As UTF-8; what is not becomes U+FFFD. A character that the limit cut in two is left out. */
  get text(): string {
    const all = this.#kept.subarray(0, this.#size);
    return (this.#isTruncated ? all.subarray(0, lastCharacterEnd(all)) : all).toString('utf8');
  }

  [Symbol.dispose](): void {
    this.#budget.give(this.#size);
    this.#size = 0;
    this.#kept = Buffer.alloc(0);
  }

  /** Doubles: a guest that writes byte by byte must cost no more memory than one that writes all at once. */
  #makeRoom(bytes: number): void {
    if (bytes <= this.#kept.length) return;
    const wider = Buffer.allocUnsafe(
      Math.min(this.#maxBytes, Math.max(bytes, 2 * this.#kept.length, MIN_ROOM_BYTES)),
    );
    this.#kept.copy(wider, 0, 0, this.#size);
    this.#kept = wider;
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
