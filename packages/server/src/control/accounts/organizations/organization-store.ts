/** Organizations and their teams in SQL. */
import { sql } from 'kysely';
import { newId } from '../../../lib/new-id.ts';
import type { Database } from '../../db/database.ts';

/** Name of the team that is created with every organization. */
const FIRST_TEAM = 'default';

/** The organization and team that own a resource. */
export interface Owner {
  organizationId: string;
  teamId: string;
}

export interface NewOrganization {
  name: string;
  region: string;
  /** True for the installation's first organization, of which there is only one. */
  isFirst?: boolean;
}

/**
 * Creates an organization with its first team. Returns undefined if `isFirst` is set and there is a first one already.
 * Call inside a transaction.
 */
export async function insertOrganization(
  transaction: Database,
  { name, region, isFirst = false }: NewOrganization,
): Promise<Owner | undefined> {
  const id = newId('org');
  const made = await transaction
    .insertInto('organizations')
    .values({ id, name, region, created_at: Date.now(), is_first: isFirst })
    .onConflict((conflict) =>
      conflict
        .column('is_first')
        .where(sql<boolean>`is_first`)
        .doNothing(),
    )
    .executeTakeFirst();
  if (made.numInsertedOrUpdatedRows !== 1n) return undefined;
  return { organizationId: id, teamId: await insertTeam(transaction, id, FIRST_TEAM) };
}

export async function insertTeam(db: Database, organizationId: string, name: string): Promise<string> {
  const id = newId('team');
  await db
    .insertInto('teams')
    .values({ id, organization_id: organizationId, name, created_at: Date.now() })
    .execute();
  return id;
}
