/** Named secrets in SQL, with sealed values. */
import { lockOrganization } from '../../accounts/organizations/lock-organization.ts';
import { sql, type ExpressionBuilder } from 'kysely';
import { isWithinSql, type Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';
import { isAliveSql, isOwnRunnerSql } from '../../ownership/live-controls.ts';
import type { Tables } from '../../schema/tables.ts';
import type { NamedSecretRow } from './named-secret-tables.ts';

/** A secret without its value, and the sandboxes within reach whose credentials name it. */
export interface SecretUse extends Omit<NamedSecretRow, 'sealed_value'> {
  sandboxes: number;
  outdated_sandboxes: number;
}

/** A sandbox with outdated values, and a number that grows with each newer one. */
export interface OutdatedSandbox {
  id: string;
  versions: number;
}

export type NewSecretRow = Pick<
  NamedSecretRow,
  'id' | 'organization_id' | 'name' | 'sealed_value' | 'updated_at'
>;

export class NamedSecretStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): NamedSecretStore {
    return new NamedSecretStore(transaction);
  }

  /**
   * Inserts a secret, or replaces the value of that of the same name, which keeps its id. Returns undefined if the
   * organization has `limit` other secrets: then nothing has changed. Call inside a transaction.
   */
  async put(row: NewSecretRow, limit: number): Promise<Pick<NamedSecretRow, 'id' | 'version'> | undefined> {
    await lockOrganization(this.#db, row.organization_id);
    const { count } = await this.#db
      .selectFrom('named_secrets')
      .select((select) => select.fn.countAll<number>().as('count'))
      .where('organization_id', '=', row.organization_id)
      .where('name', '!=', row.name)
      .executeTakeFirstOrThrow();
    if (count >= limit) return undefined;
    const { sealed_value, updated_at } = row;
    return this.#db
      .insertInto('named_secrets')
      .values({ ...row, version: 1, created_at: updated_at })
      .onConflict((conflict) =>
        conflict
          .columns(['organization_id', 'name'])
          .doUpdateSet({ sealed_value, updated_at, version: sql`named_secrets.version + 1` }),
      )
      .returning(['id', 'version'])
      .executeTakeFirstOrThrow();
  }

  /** Lists the secrets of an organization, sorted by name. */
  list(reach: Reach): Promise<SecretUse[]> {
    return this.#selectUses(reach).orderBy('name').execute();
  }

  find(reach: Reach, name: string): Promise<SecretUse | undefined> {
    return this.#selectUses(reach).where('name', '=', name).executeTakeFirst();
  }

  /** Returns those of the names that the organization has. */
  findNames(
    organizationId: string,
    names: readonly string[],
  ): Promise<Pick<NamedSecretRow, 'id' | 'name'>[]> {
    return this.#db
      .selectFrom('named_secrets')
      .select(['id', 'name'])
      .where('organization_id', '=', organizationId)
      .where('name', 'in', names)
      .execute();
  }

  /** Returns those of the secrets that the organization has. */
  findValues(
    organizationId: string,
    ids: readonly string[],
  ): Promise<Pick<NamedSecretRow, 'id' | 'name' | 'version' | 'sealed_value'>[]> {
    return this.#db
      .selectFrom('named_secrets')
      .select(['id', 'name', 'version', 'sealed_value'])
      .where('organization_id', '=', organizationId)
      .where('id', 'in', ids)
      .execute();
  }

  /** Lists the sandboxes at runners of this control that sign requests with an older version than the stored one. */
  async listOutdated(control: string): Promise<OutdatedSandbox[]> {
    return selectOutdated(this.#db)
      .select(['sandboxes.id', sql<number>`sum(named_secrets.version)`.as('versions')])
      .where(isOwnRunnerSql('runner_id', control))
      .groupBy('sandboxes.id')
      .execute();
  }

  /** Returns whether sandboxes that other controls can reach have an older version of the secret. */
  async isOutdatedElsewhere(id: string, control: string): Promise<boolean> {
    const row = await selectOutdated(this.#db)
      .innerJoin('runners', 'runners.id', 'runner_id')
      .select('sandboxes.id')
      .where('named_secrets.id', '=', id)
      .where('runners.owner', '<>', control)
      .where(isAliveSql('runners.owner'))
      .limit(1)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Lists the sandboxes whose credentials name a secret. */
  listUsers(id: string): Promise<string[]> {
    return listUsers(this.#db, id);
  }

  /**
   * Deletes a secret that no credentials name. Returns its version, and the sandboxes that keep it from that; undefined
   * if there is none. Call inside a transaction.
   */
  async remove(
    organizationId: string,
    name: string,
  ): Promise<{ version: number; users: string[] } | undefined> {
    // Credentials that are being stored lock the secret, too: see grant-store.ts.
    const secret = await this.#db
      .selectFrom('named_secrets')
      .select(['id', 'version'])
      .where('organization_id', '=', organizationId)
      .where('name', '=', name)
      .forUpdate()
      .executeTakeFirst();
    if (secret === undefined) return undefined;
    const { id, version } = secret;
    const users = await listUsers(this.#db, id);
    if (users.length === 0) await this.#db.deleteFrom('named_secrets').where('id', '=', id).execute();
    return { version, users };
  }

  #selectUses(reach: Reach) {
    return this.#db
      .selectFrom('named_secrets')
      .select(['id', 'organization_id', 'name', 'version', 'created_at', 'updated_at'])
      .select((select) => [
        countUsers(select, reach).as('sandboxes'),
        countUsers(select, reach)
          .where('sandboxes.status', 'in', ['creating', 'running'])
          .whereRef('secret_version', '<', 'named_secrets.version')
          .as('outdated_sandboxes'),
      ])
      .$narrowType<{ sandboxes: number; outdated_sandboxes: number }>()
      .where('organization_id', '=', reach.organizationId);
  }
}

function selectOutdated(db: Database) {
  return db
    .selectFrom('sandbox_credentials')
    .innerJoin('named_secrets', 'named_secrets.id', 'sandbox_credentials.secret_id')
    .innerJoin('sandboxes', 'sandboxes.id', 'sandbox_credentials.sandbox_id')
    .whereRef('secret_version', '<', 'named_secrets.version')
    .where('sandboxes.status', 'in', ['creating', 'running']);
}

function countUsers(select: ExpressionBuilder<Tables, 'named_secrets'>, reach: Reach) {
  return select
    .selectFrom('sandbox_credentials')
    .innerJoin('sandboxes', 'sandboxes.id', 'sandbox_credentials.sandbox_id')
    .select(sql<number>`count(DISTINCT sandboxes.id)`.as('count'))
    .whereRef('sandbox_credentials.secret_id', '=', 'named_secrets.id')
    .where(isWithinSql(reach, 'sandboxes'));
}

async function listUsers(db: Database, id: string): Promise<string[]> {
  const rows = await db
    .selectFrom('sandbox_credentials')
    .select('sandbox_id')
    .distinct()
    .where('secret_id', '=', id)
    .orderBy('sandbox_id')
    .execute();
  return rows.map(({ sandbox_id }) => sandbox_id);
}
