/** Checks what people may do in an organization. Other organizations appear not to exist (`not_found`). */
import { AppError, type Role } from '@coppice/contract';
import type { Database } from '../../db/database.ts';

/** The people that a route admits: members, members of the team named in its path (and owners), or owners. */
export type Audience = 'member' | 'team' | 'owner';

export interface Place {
  organizationId: string;
  /** Undefined if the path names no team. */
  teamId: string | undefined;
}

export class Access {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Returns the person's role. Throws `not_found` for a non-member or a team of another organization, and `forbidden`
   * for a member who is not in the audience.
   */
  async check(userId: string, { organizationId, teamId }: Place, audience: Audience): Promise<Role> {
    const role = await this.#findRole(userId, organizationId);
    if (role === undefined) throw noOrganization();
    const isInTeam = teamId !== undefined && (await this.#isInTeam(userId, organizationId, teamId));
    if (role === 'owner' || audience === 'member' || (audience === 'team' && isInTeam)) return role;
    throw new AppError(
      'forbidden',
      audience === 'owner'
        ? 'only an owner of the organization may do this'
        : 'only a member of the team, or an owner of the organization, may do this',
    );
  }

  /** Throws `forbidden` unless the person is an owner of the first organization, and so operates the service. */
  async checkOperator(userId: string): Promise<void> {
    if (!(await ownsFirst(this.#db, userId)))
      throw new AppError('forbidden', 'only owners of the first organization may do this');
  }

  async #findRole(userId: string, organizationId: string): Promise<Role | undefined> {
    const found = await this.#db
      .selectFrom('memberships')
      .select('role')
      .where('organization_id', '=', organizationId)
      .where('user_id', '=', userId)
      .executeTakeFirst();
    return found?.role;
  }

  async #isInTeam(userId: string, organizationId: string, teamId: string): Promise<boolean> {
    const found = await this.#db
      .selectFrom('teams')
      .leftJoin('team_members', (join) =>
        join.onRef('team_members.team_id', '=', 'teams.id').on('team_members.user_id', '=', userId),
      )
      .select('team_members.user_id')
      .where('teams.id', '=', teamId)
      .where('teams.organization_id', '=', organizationId)
      .executeTakeFirst();
    if (found === undefined) throw new AppError('not_found', 'there is no such team in this organization');
    return found.user_id !== null;
  }
}

export function noOrganization(): AppError {
  return new AppError('not_found', 'there is no such organization, or you are not a member of it');
}

/** Whether the person is an owner of the installation's first organization. */
export async function ownsFirst(db: Database, userId: string): Promise<boolean> {
  const found = await db
    .selectFrom('memberships')
    .innerJoin('organizations', 'organizations.id', 'memberships.organization_id')
    .select('organizations.id')
    .where('user_id', '=', userId)
    .where('role', '=', 'owner')
    .where('is_first', '=', true)
    .executeTakeFirst();
  return found !== undefined;
}
