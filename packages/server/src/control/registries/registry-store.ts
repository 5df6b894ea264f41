/** Registry credentials in SQL, with sealed passwords. */
import { lockOrganization } from '../accounts/organizations/lock-organization.ts';
import type { Database } from '../db/database.ts';
import type { RegistryCredentialTable } from './registry-tables.ts';

export type RegistryRow = RegistryCredentialTable;

export class RegistryStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): RegistryStore {
    return new RegistryStore(transaction);
  }

  /**
   * Inserts or replaces. Returns undefined and changes nothing if the organization has `limit` other registries. Call
   * inside a transaction.
   */
  async put(row: RegistryRow, limit: number): Promise<RegistryRow | undefined> {
    await lockOrganization(this.#db, row.organization_id);
    const { count } = await this.#db
      .selectFrom('registry_credentials')
      .select((select) => select.fn.countAll<number>().as('count'))
      .where('organization_id', '=', row.organization_id)
      .where('registry', '!=', row.registry)
      .executeTakeFirstOrThrow();
    if (count >= limit) return undefined;
    const { username, sealed_password, updated_at } = row;
    return this.#db
      .insertInto('registry_credentials')
      .values(row)
      .onConflict((conflict) =>
        conflict
          .columns(['organization_id', 'registry'])
          .doUpdateSet({ username, sealed_password, updated_at }),
      )
      .returningAll()
      .executeTakeFirstOrThrow();
  }

  find(organizationId: string, registry: string): Promise<RegistryRow | undefined> {
    return this.#db
      .selectFrom('registry_credentials')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .where('registry', '=', registry)
      .executeTakeFirst();
  }

  list(organizationId: string): Promise<RegistryRow[]> {
    return this.#db
      .selectFrom('registry_credentials')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .orderBy('registry')
      .execute();
  }

  /** Returns false if there was nothing to remove. */
  async remove(organizationId: string, registry: string): Promise<boolean> {
    const removed = await this.#db
      .deleteFrom('registry_credentials')
      .where('organization_id', '=', organizationId)
      .where('registry', '=', registry)
      .executeTakeFirst();
    return removed.numDeletedRows > 0n;
  }
}
