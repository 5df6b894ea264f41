/** Ends what nothing moves in any more. */
export class IdleLimit implements Disposable {
  readonly #onIdle: () => void;
  #timer: NodeJS.Timeout;

  constructor(timeoutMs: number, onIdle: () => void) {
    this.#onIdle = onIdle;
    this.#timer = setTimeout(onIdle, timeoutMs);
  }

  /** Something has moved. */
  refresh(): void {
    this.#timer.refresh();
  }

  /** From now on another limit holds. */
  change(timeoutMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onIdle, timeoutMs);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}
