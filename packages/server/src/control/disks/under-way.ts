/** Ids of what this process is making, changing or removing. The reconciler leaves them alone. */
export class UnderWay {
  readonly #counts = new Map<string, number>();

  has(id: string): boolean {
    return this.#counts.has(id);
  }

  async run<T>(id: string, work: () => Promise<T>): Promise<T> {
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
    try {
      return await work();
    } finally {
      const left = (this.#counts.get(id) ?? 1) - 1;
      if (left === 0) this.#counts.delete(id);
      else this.#counts.set(id, left);
    }
  }
}
