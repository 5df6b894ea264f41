/**
 * Records that are being inserted. A record whose insert got no answer stays here until it is known whether it exists.
 */
import { isDatabaseAway } from '../../db/database-error.ts';
import type { NewSandboxRow, SandboxRow } from './sandbox-tables.ts';
import { ByOrganization } from './by-organization.ts';
import type { SandboxStore } from './sandbox-store.ts';

interface Pending extends Pick<NewSandboxRow, 'id' | 'vcpus' | 'mem_mib'> {
  organizationId: string;
  isInDoubt: boolean;
}

export class PendingInserts {
  readonly #store: SandboxStore;
  readonly #pending = new ByOrganization<Pending>();

  constructor(store: SandboxStore) {
    this.#store = store;
  }

  /** Inserts all of them or none. */
  async insert(rows: readonly NewSandboxRow[]): Promise<SandboxRow[]> {
    for (const row of rows) this.#note(row, false);
    let isInDoubt = false;
    try {
      return await this.#store.insert(rows);
    } catch (error) {
      isInDoubt = isDatabaseAway(error);
      throw error;
    } finally {
      for (const row of rows) {
        if (isInDoubt) this.#note(row, true);
        else this.#pending.delete(row.organization_id, row.id);
      }
    }
  }

  list(organizationId: string): Pending[] {
    return this.#pending.listOf(organizationId);
  }

  /** Looks up the records in doubt, and calls `take` with each row that exists. */
  async resolve(take: (row: SandboxRow) => void): Promise<void> {
    for (const { id, organizationId, isInDoubt } of this.#pending.list()) {
      if (!isInDoubt) continue;
      const row = await this.#store.findById(id);
      // Another round may have handed it over meanwhile.
      if (this.#pending.get(id) === undefined) continue;
      this.#pending.delete(organizationId, id);
      if (row !== undefined) take(row);
    }
  }

  #note({ id, organization_id, vcpus, mem_mib }: NewSandboxRow, isInDoubt: boolean): void {
    this.#pending.set(organization_id, id, {
      id,
      organizationId: organization_id,
      vcpus,
      mem_mib,
      isInDoubt,
    });
  }
}
