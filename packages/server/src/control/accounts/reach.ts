/** What a caller may see of an organization's sandboxes, and of what comes of them. Everything that finds one takes it. */
import { sql, type RawBuilder } from 'kysely';

export interface Reach {
  readonly organizationId: string;
  /** Only what is this team's; null: what is every team's. */
  readonly onlyTeamId: string | null;
}

/** What has an owner; a sandbox's row, for example. */
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

/** The same in SQL, of a table or an alias that has both columns. */
export function isWithinSql({ organizationId, onlyTeamId }: Reach, table: string): RawBuilder<boolean> {
  const ofOrganization = sql`${sql.ref(`${table}.organization_id`)} = ${organizationId}`;
  if (onlyTeamId === null) return sql<boolean>`(${ofOrganization})`;
  return sql<boolean>`(${ofOrganization} AND ${sql.ref(`${table}.team_id`)} = ${onlyTeamId})`;
}
