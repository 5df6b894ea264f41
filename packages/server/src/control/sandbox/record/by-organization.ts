/** Map of values by id, grouped by organization. Listing one organization costs the same however many others have. */
export class ByOrganization<T> {
  readonly #all = new Map<string, T>();
  /** No group is empty. */
  readonly #groups = new Map<string, Map<string, T>>();

  /** Adds a value, or replaces the one with this id, which must belong to the same organization. */
  set(organizationId: string, id: string, value: T): void {
    this.#all.set(id, value);
    const group = this.#groups.get(organizationId);
    if (group === undefined) this.#groups.set(organizationId, new Map([[id, value]]));
    else group.set(id, value);
  }

  delete(organizationId: string, id: string): void {
    const group = this.#groups.get(organizationId);
    if (group?.delete(id) !== true) return;
    this.#all.delete(id);
    if (group.size === 0) this.#groups.delete(organizationId);
  }

  get(id: string): T | undefined {
    return this.#all.get(id);
  }

  /** Returns the values of every organization. */
  list(): T[] {
    return [...this.#all.values()];
  }

  listOf(organizationId: string): T[] {
    return [...(this.#groups.get(organizationId)?.values() ?? [])];
  }
}
