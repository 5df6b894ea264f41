/** Records that are being inserted. One whose answer was lost stays here until it is known whether it was made. */
import { isDatabaseAway } from '../db/database-error.ts';
import type { NewSandboxRow, SandboxRow } from '../db/tables.ts';
import type { SandboxStore } from './sandbox-store.ts';

interface Pending {
  organizationId: string;
  isInDoubt: boolean;
}

export class PendingInserts {
  readonly #store: SandboxStore;
  readonly #pending = new Map<string, Pending>();

  constructor(store: SandboxStore) {
    this.#store = store;
  }

  async insert(row: NewSandboxRow): Promise<SandboxRow> {
    const pending: Pending = { organizationId: row.organization_id, isInDoubt: false };
    this.#pending.set(row.id, pending);
    try {
      return await this.#store.insert(row);
    } catch (error) {
      pending.isInDoubt = isDatabaseAway(error);
      throw error;
    } finally {
      if (!pending.isInDoubt) this.#pending.delete(row.id);
    }
  }

  count(organizationId: string): number {
    return [...this.#pending.values()].filter((one) => one.organizationId === organizationId).length;
  }

  /** Looks for those in doubt, and hands over the rows that are there. */
  async resolve(take: (row: SandboxRow) => void): Promise<void> {
    for (const [id, { isInDoubt }] of this.#pending) {
      if (!isInDoubt) continue;
      const row = await this.#store.findById(id);
      this.#pending.delete(id);
      if (row !== undefined) take(row);
    }
  }
}
