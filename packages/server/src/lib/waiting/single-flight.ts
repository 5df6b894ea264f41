/** Joins callers that ask for the same thing at the same time: the work runs once for each key. */
export class SingleFlight<T> {
  readonly #flights = new Map<string, Promise<T>>();

  run(key: string, work: () => Promise<T>): Promise<T> {
    const joined = this.#flights.get(key);
    if (joined !== undefined) return joined;
    const flight = work().finally(() => this.#flights.delete(key));
    this.#flights.set(key, flight);
    return flight;
  }
}
