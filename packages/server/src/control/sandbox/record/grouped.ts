/** Map of values by id, in groups. Listing one group costs the same however large the others are. */
export class Grouped<T> {
  readonly #all = new Map<string, T>();
  /** No group is empty. */
  readonly #groups = new Map<string, Map<string, T>>();

  /** Adds a value, or replaces the one with this id, which must belong to the same group. */
  set(groupId: string, id: string, value: T): void {
    this.#all.set(id, value);
    const group = this.#groups.get(groupId);
    if (group === undefined) this.#groups.set(groupId, new Map([[id, value]]));
    else group.set(id, value);
  }

  delete(groupId: string, id: string): void {
    const group = this.#groups.get(groupId);
    if (group?.delete(id) !== true) return;
    this.#all.delete(id);
    if (group.size === 0) this.#groups.delete(groupId);
  }

  get(id: string): T | undefined {
    return this.#all.get(id);
  }

  /** Returns the values of every group. */
  list(): T[] {
    return [...this.#all.values()];
  }

  listOf(groupId: string): T[] {
    return [...(this.#groups.get(groupId)?.values() ?? [])];
  }
}
