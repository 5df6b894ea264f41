/** Teams. A team's keys create sandboxes, and the team's secrets key the audit logs of those sandboxes. */
import { AppError, type AuditActor, type TeamMemberRecord, type TeamRecord } from '@coppice/contract';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import { isTaken } from '../../db/database-error.ts';
import type { Database } from '../../db/database.ts';
import { lockOrganization } from './lock-organization.ts';
import { insertTeam, type Owner } from './organization-store.ts';
import type { Reach } from './reach.ts';

const MAX_TEAMS = 200;

export class Teams {
  readonly #db: Database;

  readonly #audit: OrganizationAudit;

  constructor(db: Database, audit: OrganizationAudit) {
    this.#db = db;
    this.#audit = audit;
  }

  /** Lists teams in the order of their creation. */
  async list(organizationId: string): Promise<TeamRecord[]> {
    const rows = await this.#db
      .selectFrom('teams')
      .select(['id', 'name', 'created_at'])
      .where('organization_id', '=', organizationId)
      .orderBy('created_at')
      .orderBy('id')
      .execute();
    return rows.map(toRecord);
  }

  async create(organizationId: string, name: string, by: AuditActor): Promise<TeamRecord> {
    const id = await named(name, () =>
      this.#db.transaction().execute(async (transaction) => {
        await lockOrganization(transaction, organizationId);
        const { count } = await transaction
          .selectFrom('teams')
          .select(({ fn }) => fn.countAll<number>().as('count'))
          .where('organization_id', '=', organizationId)
          .executeTakeFirstOrThrow();
        if (count >= MAX_TEAMS)
          throw new AppError('rate_limited', `the organization has ${count} teams, which is the limit`);
        const team_id = await insertTeam(transaction, organizationId, name);
        const notes = [{ event: 'team.created' as const, data: { team_id, name } }];
        await this.#audit.write(transaction, { organizationId, by, notes });
        return team_id;
      }),
    );
    return this.get(id);
  }

  async rename({ organizationId, teamId }: Owner, name: string, by: AuditActor): Promise<TeamRecord> {
    await named(name, () =>
      this.#db.transaction().execute(async (transaction) => {
        const { numUpdatedRows } = await transaction
          .updateTable('teams')
          .set({ name })
          .where('id', '=', teamId)
          .where('name', '!=', name)
          .executeTakeFirst();
        if (numUpdatedRows === 0n) return;
        const notes = [{ event: 'team.renamed' as const, data: { team_id: teamId, name } }];
        await this.#audit.write(transaction, { organizationId, by, notes });
      }),
    );
    return this.get(teamId);
  }

  /** Narrows a reach to one team, given by its id or name. Throws `not_found` for a team outside the reach. */
  async narrow(reach: Reach, team: string): Promise<Reach> {
    const { organizationId, onlyTeamId } = reach;
    const rows = await this.#db
      .selectFrom('teams')
      .select('id')
      .where('organization_id', '=', organizationId)
      .where((where) => where.or([where('id', '=', team), where('name', '=', team)]))
      .execute();
    // An id takes precedence over a name that looks like it.
    const found = rows.find(({ id }) => id === team) ?? rows[0];
    if (found !== undefined && (onlyTeamId === null || onlyTeamId === found.id))
      return { organizationId, onlyTeamId: found.id };
    throw new AppError('not_found', 'team: the key sees no team with this id or name');
  }

  async get(teamId: string): Promise<TeamRecord> {
    const row = await this.#db
      .selectFrom('teams')
      .select(['id', 'name', 'created_at'])
      .where('id', '=', teamId)
      .executeTakeFirstOrThrow();
    return toRecord(row);
  }

  async listMembers(teamId: string): Promise<TeamMemberRecord[]> {
    const rows = await this.#db
      .selectFrom('team_members')
      .innerJoin('users', 'users.id', 'team_members.user_id')
      .select(['users.id', 'email', 'name', 'team_members.created_at'])
      .where('team_id', '=', teamId)
      .orderBy('team_members.created_at')
      .orderBy('users.id')
      .execute();
    return rows.map(({ id, email, name, created_at }) => ({
      id,
      email,
      name,
      joined_at: new Date(created_at).toISOString(),
    }));
  }

  /** Adds a member of the organization to a team; adding twice changes nothing. Throws `not_found` for a non-member. */
  async addMember({ organizationId, teamId }: Owner, userId: string, by: AuditActor): Promise<void> {
    await this.#db.transaction().execute(async (transaction) => {
      const member = await transaction
        .selectFrom('memberships')
        .select('user_id')
        .where('organization_id', '=', organizationId)
        .where('user_id', '=', userId)
        .forShare()
        .executeTakeFirst();
      if (member === undefined)
        throw new AppError('not_found', 'there is no such member of this organization');
      const { numInsertedOrUpdatedRows } = await transaction
        .insertInto('team_members')
        .values({ team_id: teamId, user_id: userId, created_at: Date.now() })
        .onConflict((conflict) => conflict.columns(['team_id', 'user_id']).doNothing())
        .executeTakeFirst();
      if (numInsertedOrUpdatedRows !== 1n) return;
      const notes = [{ event: 'team.member_added' as const, data: { team_id: teamId, user_id: userId } }];
      await this.#audit.write(transaction, { organizationId, by, notes });
    });
  }

  async removeMember({ organizationId, teamId }: Owner, userId: string, by: AuditActor): Promise<void> {
    await this.#db.transaction().execute(async (transaction) => {
      const { numDeletedRows } = await transaction
        .deleteFrom('team_members')
        .where('team_id', '=', teamId)
        .where('user_id', '=', userId)
        .executeTakeFirst();
      if (numDeletedRows === 0n) throw new AppError('not_found', 'there is no such member of this team');
      const notes = [{ event: 'team.member_removed' as const, data: { team_id: teamId, user_id: userId } }];
      await this.#audit.write(transaction, { organizationId, by, notes });
    });
  }
}

/** Runs `write`, which sets a team's name. Throws `already_exists` if another team has the name. */
async function named<T>(name: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    if (!isTaken(error)) throw error;
    throw new AppError('already_exists', `name: another team of the organization is called "${name}"`);
  }
}

function toRecord(row: { id: string; name: string; created_at: number }): TeamRecord {
  return { ...row, created_at: new Date(row.created_at).toISOString() };
}
