/** Calls `onIdle` when no progress is reported within the timeout. */
export class IdleLimit implements Disposable {
  readonly #onIdle: () => void;
  #timer: NodeJS.Timeout;

  constructor(timeoutMs: number, onIdle: () => void) {
    this.#onIdle = onIdle;
    this.#timer = setTimeout(onIdle, timeoutMs);
  }

  /** Reports progress: restarts the timeout. */
  refresh(): void {
    this.#timer.refresh();
  }

  /** Restarts with another timeout. */
  change(timeoutMs: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onIdle, timeoutMs);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}
