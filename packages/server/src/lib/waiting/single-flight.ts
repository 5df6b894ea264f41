/** Merges concurrent calls with the same key: the work runs once for all of them. */
export class SingleFlight<T> {
  readonly #flights = new Map<string, Promise<T>>();

  /** Keys of the work that runs now. */
  get keys(): string[] {
    return [...this.#flights.keys()];
  }

  /** Returns the running work of the key. */
  find(key: string): Promise<T> | undefined {
    return this.#flights.get(key);
  }

  run(key: string, work: () => Promise<T>): Promise<T> {
    const joined = this.#flights.get(key);
    if (joined !== undefined) return joined;
    const flight = work().finally(() => this.#flights.delete(key));
    this.#flights.set(key, flight);
    return flight;
  }
}
