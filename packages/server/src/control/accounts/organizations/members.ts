/** Members of organizations. An organization never loses its last owner. */
import { AppError, type MemberRecord, type Role } from '@coppice/contract';
import type { Database } from '../../db/database.ts';
import { lockOrganization } from './lock-organization.ts';

export class Members {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Lists members in the order in which they joined. */
  async list(organizationId: string): Promise<MemberRecord[]> {
    const rows = await this.#db
      .selectFrom('memberships')
      .innerJoin('users', 'users.id', 'memberships.user_id')
      .select(['users.id', 'email', 'name', 'role', 'memberships.created_at'])
      .where('organization_id', '=', organizationId)
      .orderBy('memberships.created_at')
      .orderBy('users.id')
      .execute();
    return rows.map(({ id, email, name, role, created_at }) => ({
      id,
      email,
      name,
      role,
      joined_at: new Date(created_at).toISOString(),
    }));
  }

  async changeRole(organizationId: string, userId: string, role: Role): Promise<void> {
    await this.#change(organizationId, userId, async (transaction, current) => {
      if (current === 'owner' && role !== 'owner')
        await assertOtherOwner(transaction, organizationId, userId);
      await transaction
        .updateTable('memberships')
        .set({ role })
        .where('organization_id', '=', organizationId)
        .where('user_id', '=', userId)
        .execute();
    });
  }

  /** Removes the person from the organization and from its teams. The teams' keys stay. */
  async remove(organizationId: string, userId: string): Promise<void> {
    await this.#change(organizationId, userId, async (transaction, current) => {
      if (current === 'owner') await assertOtherOwner(transaction, organizationId, userId);
      // Deleted first: adding the person to a team holds a lock on this row until that is committed.
      await transaction
        .deleteFrom('memberships')
        .where('organization_id', '=', organizationId)
        .where('user_id', '=', userId)
        .execute();
      await transaction
        .deleteFrom('team_members')
        .where('user_id', '=', userId)
        .where('team_id', 'in', (teams) =>
          teams.selectFrom('teams').select('id').where('organization_id', '=', organizationId),
        )
        .execute();
    });
  }

  /** Serializes changes of an organization's members, so that its last two owners cannot leave at the same time. */
  async #change(
    organizationId: string,
    userId: string,
    change: (transaction: Database, current: Role) => Promise<void>,
  ): Promise<void> {
    await this.#db.transaction().execute(async (transaction) => {
      await lockOrganization(transaction, organizationId);
      const found = await transaction
        .selectFrom('memberships')
        .select('role')
        .where('organization_id', '=', organizationId)
        .where('user_id', '=', userId)
        .executeTakeFirst();
      if (found === undefined)
        throw new AppError('not_found', 'there is no such member of this organization');
      await change(transaction, found.role);
    });
  }
}

async function assertOtherOwner(db: Database, organizationId: string, userId: string): Promise<void> {
  const other = await db
    .selectFrom('memberships')
    .select('user_id')
    .where('organization_id', '=', organizationId)
    .where('role', '=', 'owner')
    .where('user_id', '<>', userId)
    .limit(1)
    .executeTakeFirst();
  if (other === undefined)
    throw new AppError(
      'invalid_state',
      'this is the last owner of the organization; make another member one first',
    );
}
