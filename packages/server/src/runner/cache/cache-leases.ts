/**
 * Records the uses of the cache. A lease holds an image and the templates made from it as long as something depends on
 * them: a preparation, a template being made, a VM that is created, waits in the warm pool, runs or was adopted.
 * The evictor never evicts what a lease holds.
 */
export const imageKey = (digest: string): string => `image ${digest}`;
export const templateKey = (key: string): string => `template ${key}`;

export class CacheLeases {
  readonly #holders = new Map<string, number>();
  #onIdle: ((key: string) => void) | undefined;

  /** Sets the one listener, which is called with a key when the last lease of it is released. */
  whenIdle(listener: (key: string) => void): void {
    this.#onIdle = listener;
  }

  open(): CacheLease {
    return new CacheLease(
      (key) => this.#holders.set(key, (this.#holders.get(key) ?? 0) + 1),
      (key) => this.#release(key),
    );
  }

  isHeld(key: string): boolean {
    return this.#holders.has(key);
  }

  #release(key: string): void {
    const left = (this.#holders.get(key) ?? 0) - 1;
    if (left > 0) {
      this.#holders.set(key, left);
      return;
    }
    this.#holders.delete(key);
    this.#onIdle?.(key);
  }
}

export class CacheLease implements Disposable {
  readonly #keys = new Set<string>();
  readonly #hold: (key: string) => void;
  readonly #letGo: (key: string) => void;
  #isReleased = false;

  constructor(hold: (key: string) => void, letGo: (key: string) => void) {
    this.#hold = hold;
    this.#letGo = letGo;
  }

  /** Marks a thing as in use, whether it exists already or is about to be made. */
  add(key: string): void {
    if (this.#isReleased || this.#keys.has(key)) return;
    this.#keys.add(key);
    this.#hold(key);
  }

  /** Idempotent. */
  release(): void {
    this.#isReleased = true;
    for (const key of this.#keys) this.#letGo(key);
    this.#keys.clear();
  }

  [Symbol.dispose](): void {
    this.release();
  }
}
