/** Records that are being inserted. One whose answer was lost stays here until it is known whether it was made. */
import { isDatabaseAway } from '../db/database-error.ts';
import type { NewSandboxRow, SandboxRow } from '../db/tables.ts';
import type { SandboxStore } from './sandbox-store.ts';

interface Pending extends Pick<NewSandboxRow, 'vcpus' | 'mem_mib'> {
  organizationId: string;
  isInDoubt: boolean;
}

export class PendingInserts {
  readonly #store: SandboxStore;
  readonly #pending = new Map<string, Pending>();

  constructor(store: SandboxStore) {
    this.#store = store;
  }

  /** All of them or none. */
  async insert(rows: readonly NewSandboxRow[]): Promise<SandboxRow[]> {
    for (const row of rows) this.#pending.set(row.id, toPending(row, false));
    let isInDoubt = false;
    try {
      return await this.#store.insert(rows);
    } catch (error) {
      isInDoubt = isDatabaseAway(error);
      throw error;
    } finally {
      for (const row of rows) {
        if (isInDoubt) this.#pending.set(row.id, toPending(row, true));
        else this.#pending.delete(row.id);
      }
    }
  }

  list(organizationId: string): Pending[] {
    return [...this.#pending.values()].filter((one) => one.organizationId === organizationId);
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

function toPending({ organization_id, vcpus, mem_mib }: NewSandboxRow, isInDoubt: boolean): Pending {
  return { organizationId: organization_id, vcpus, mem_mib, isInDoubt };
}
