/** Organizations and their teams in SQL. */
import { sql } from 'kysely';
import { newId } from '../../lib/new-id.ts';
import type { Database } from '../db/database.ts';

/** Of every organization, made with it. */
export const FIRST_TEAM = 'default';

/** Whom something belongs to. */
export interface Owner {
  organizationId: string;
  teamId: string;
}

export interface NewOrganization {
  name: string;
  region: string;
  /** Of the installation; there is only one. */
  isFirst?: boolean;
}

/** Makes an organization with its first team; undefined when it would be the first one and is not. Only in a transaction. */
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
