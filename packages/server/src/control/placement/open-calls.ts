/** Requests to a runner whose answers have not ended. */
export class OpenCalls {
  /** When each began, by the monotonic clock. */
  readonly #begun = new Set<{ at: number }>();

  get count(): number {
    return this.#begun.size;
  }

  /** For how long the oldest one has been open; 0 without any. */
  get longestMs(): number {
    const [oldest] = this.#begun;
    return oldest === undefined ? 0 : performance.now() - oldest.at;
  }

  /** Notes one until the returned function is called. */
  begin(): () => void {
    const call = { at: performance.now() };
    this.#begun.add(call);
    return () => void this.#begun.delete(call);
  }
}
