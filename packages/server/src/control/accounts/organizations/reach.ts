/**
 * The sandboxes of an organization that a key can see, with their snapshots, logs and costs. Every function that finds
 * one takes a `Reach`.
 */
import { sql, type RawBuilder } from 'kysely';

export interface Reach {
  readonly organizationId: string;
  /** The one team whose sandboxes it sees; null for all teams. */
  readonly onlyTeamId: string | null;
}

/** A row that belongs to a team, such as a sandbox's. */
export interface Owned {
  organization_id: string;
  team_id: string;
}

export function isWithin(
  { organizationId, onlyTeamId }: Reach,
  { organization_id, team_id }: Owned,
): boolean {
  return organization_id === organizationId && (onlyTeamId === null || team_id === onlyTeamId);
}

/** {@link isWithin} in SQL, for a table or an alias with both columns. */
export function isWithinSql({ organizationId, onlyTeamId }: Reach, table: string): RawBuilder<boolean> {
  const ofOrganization = sql`${sql.ref(`${table}.organization_id`)} = ${organizationId}`;
  if (onlyTeamId === null) return sql<boolean>`(${ofOrganization})`;
  return sql<boolean>`(${ofOrganization} AND ${sql.ref(`${table}.team_id`)} = ${onlyTeamId})`;
}
